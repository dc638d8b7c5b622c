#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"

namespace troupe::gpu {

/// How rotary position embeddings reach beyond the positions that the model was first trained on.
struct rope_scaling {
  enum class kind : std::uint8_t { none, linear, llama3, yarn };
  kind what = kind::none;
  double factor = 1;
  double low_frequency_factor = 1, high_frequency_factor = 4;  // llama3
  double original_positions = 0;                               // llama3, yarn
  // yarn: frequencies that turn more than fast_turns times in the original positions stay, those of
  // less than slow_turns are divided by the factor; the bounds between them are whole dimensions if
  // they are rounded. Cosines and sines are multiplied by attention_factor.
  double fast_turns = 32, slow_turns = 1;
  bool whole_bounds = true;
  double attention_factor = 1;

  bool operator==(const rope_scaling&) const = default;
};

/// Settings of the choice of tokens; those that are absent have other defaults.
struct sampling_defaults {
  std::optional<double> temperature, top_p, min_p;
  std::optional<std::uint32_t> top_k;
  std::optional<double> repetition_penalty{};
};

/// A model without its weights, as inference needs it.
struct inference_model {
  /// gpt2: layer norm, learned positions, GELU in its form with tanh, biases everywhere.
  /// llama: RMS norm, rotary positions, SwiGLU; also Mistral, Qwen2 and Qwen3.
  enum class family : std::uint8_t { gpt2, llama };
  std::string name;
  family kind = family::gpt2;
  std::uint32_t hidden = 0, layers = 0, heads = 0;
  std::uint32_t kv_heads = 0;      // divides heads: each serves heads / kv_heads of them
  std::uint32_t head_width = 0;    // even for rotary positions
  std::uint32_t intermediate = 0;  // the MLP's width
  std::uint32_t positions = 0;     // the longest context
  std::uint32_t vocabulary = 0;
  bool tied_head = true;
  double norm_epsilon = 1e-5;
  double rope_theta = 10'000;
  rope_scaling rope;
  bool qkv_bias = true, output_bias = true, mlp_bias = true;
  bool head_norms = false;   // RMS norms of each head's queries and keys before they are rotated
  std::uint32_t window = 0;  // positions that each attends to, its own included; 0: all before it
  std::optional<std::uint32_t> first_token;  // that begins a text
  std::vector<std::uint32_t> last_tokens;    // each ends a text
  sampling_defaults defaults;                // of requests without these settings
  // Further keys of generation_config.json that may change answers. They are not applied.
  std::vector<std::string> ignored_keys{};

  /// Widths of queries, and of keys (or values), of all heads.
  std::uint32_t query_width() const { return heads * head_width; }
  std::uint32_t kv_width() const { return kv_heads * head_width; }
};

/// The model of a Hugging Face folder: config.json and, for the tokens that end a text
/// and the defaults of sampling, generation_config.json if there is one. Supports model_type gpt2,
/// llama, mistral, qwen2 and qwen3. Refuses, naming file and key, whatever would change results and
/// is not computed here: windows of some layers, other rope scaling, other activations,
/// quantization. A path that is no such folder is refused with what it is.
expected<inference_model> read_inference_model(const std::filesystem::path& folder);

}  // namespace troupe::gpu
