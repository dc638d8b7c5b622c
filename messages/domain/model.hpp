#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/base/fields.hpp"

namespace troupe {

/// An operator of a model that is not a plain transformer (or of an expanded transformer).
struct model_operator {
  std::string name;
  double flops = 0;  // forward, one sample
  double parameters = 0;
  /// Activation for the next operator, one sample: in half precision, of family `layers` as sent.
  double output_bytes = 0;
  // Only of `layers`:
  double kept_bytes = 0;   // by a forward for its backward, one sample
  double state_bytes = 0;  // of the optimizer
  bool glued = false;      // in one stage with the layer before it
  static constexpr std::size_t required = 4;

  TROUPE_FIELDS(model_operator, name, flops, parameters, output_bytes, kept_bytes, state_bytes,
                glued);
};

/// A model, from a file or a Hugging Face config.json. family: gpt, llama, bert, vit are
/// transformers; wide-resnet, moe and layers are given as `operators`.
struct model {
  std::string name;
  /// `gpt`, `llama`, `bert`, `vit`: transformers; `wide-resnet`, `moe`: given by `operators`;
  /// `layers`: those of a program, measured by `troupe describe`.
  std::string family = "gpt";
  std::uint32_t hidden = 0;
  std::uint32_t layers = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;      // 0: as heads (no grouped-query attention)
  std::uint32_t intermediate = 0;  // the MLP's width; 0: 4 * `hidden`
  std::uint32_t sequence = 0;
  std::uint32_t vocabulary = 0;
  /// The first embedding is the head's matrix, too; of family `layers`: the first and the last
  /// layer share a parameter.
  bool tied_head = true;
  std::vector<model_operator> operators;  // empty for transformers
  std::uint32_t head_width = 0;           // 0: `hidden` / `heads`
  bool qkv_bias = false;                  // of the family llama: biases of queries, keys and values
  bool output_bias = false;               // of the attention's output
  bool mlp_bias = false;                  // of the MLP
  /// Those that the first and the last layer of family `layers` share; none: they share none.
  std::optional<double> tied_parameters{};
  /// Updates need the norm of all gradients, for clipping or fp16's scale; of family `layers`.
  std::optional<bool> needs_norm{};
  static constexpr std::size_t required = 11;

  TROUPE_FIELDS(model, name, family, hidden, layers, heads, kv_heads, intermediate, sequence,
                vocabulary, tied_head, operators, head_width, qkv_bias, output_bias, mlp_bias,
                tied_parameters, needs_norm);
};

/// Are its operators the layers of a program?
inline bool has_program_layers(const model& m) {
  return m.family == "layers";
}

/// Width of all query heads together, and of all key heads (as of all value heads). At least one
/// head.
inline double query_width(const model& m) {
  return m.head_width == 0 ? m.hidden : 1.0 * m.head_width * m.heads;
}
inline double kv_width(const model& m) {
  return m.kv_heads == 0 ? query_width(m)
                         : query_width(m) * m.kv_heads / (m.heads > 0 ? m.heads : 1);
}

}  // namespace troupe
