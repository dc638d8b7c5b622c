#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "gpu/inference/inference_model.hpp"
#include "gpu/model/safetensors.hpp"

// A model's weights by their role, whatever the family calls and how it stores them.

namespace troupe::gpu {

/// A matrix [in, out] that a device multiplies with, or a vector (in 1), and the tensors of the
/// files that it is made of: side by side, so that their columns follow each other.
struct weight_matrix {
  enum class start : std::uint8_t { normal, one, zero };
  struct tensor {
    std::string name;
    std::uint64_t columns = 0;
  };
  std::vector<tensor> tensors;  // empty: the model has none
  std::uint64_t in = 1, out = 0;
  bool vector = false;
  bool turned = false;  // stored as [columns, in]
  start initial = start::normal;

  bool exists() const { return !tensors.empty(); }
  std::uint64_t values() const { return in * out; }
};

/// An attention has the norm before it, the product for queries, keys and values, and the product
/// back to the hidden size; an MLP the norm, the widening product, for SwiGLU the gate and then the
/// other half, and the product back. Norms of the heads of queries and of keys, if the model has
/// them, have the weights of one head.
struct sublayer_weights {
  weight_matrix norm, norm_bias, wide, wide_bias, back, back_bias, query_norm, key_norm;

  /// In the order of the computation, those that do not exist included.
  std::array<const weight_matrix*, 8> all() const {
    return {&norm, &norm_bias, &wide, &wide_bias, &query_norm, &key_norm, &back, &back_bias};
  }
};
/// Sublayer 2i is the attention of layer i, 2i + 1 its MLP.
sublayer_weights weights_of(const inference_model& m, std::uint32_t sublayer);

struct end_weights {
  weight_matrix embedding;        // [vocabulary, hidden]
  weight_matrix positions;        // learned: [positions, hidden]
  weight_matrix norm, norm_bias;  // the last
  weight_matrix head;             // [hidden, vocabulary]
};
end_weights end_weights_of(const inference_model& m);

/// A tensor as the files have it.
struct named_shape {
  std::string name;
  std::vector<std::uint64_t> shape;
};
/// All tensors of a model's files.
std::vector<named_shape> tensors_of(const inference_model& m);

/// The weights of a model folder, in open files: f32, f16 or bf16.
class model_weights {
 public:
  /// Fails, naming file and tensor, if the folder does not have exactly this model's tensors in
  /// their shapes. Masks and rotary frequencies, which some files contain, are ignored.
  static expected<model_weights> open(const std::filesystem::path& folder,
                                      const inference_model& m);

  /// out: m.values() floats, row by row. `m` is of the model that was opened, and exists.
  /// Fails if a file has become too short.
  expected<void> read(const weight_matrix& m, std::span<float> out) const;

 private:
  found_tensor find(const std::string& name) const;
  expected<void> check(const std::filesystem::path& folder, const inference_model& m) const;

  std::vector<safetensors> files_;
};

/// Values for tests of speed: normal with deviation 0.02, norms 1, biases 0; a function of the
/// seed, the tensors' names and the index in each.
void random_weights(const weight_matrix& m, std::uint64_t seed, std::span<float> out);

}  // namespace troupe::gpu
