#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/inference/inference_model.hpp"
#include "messages/base/reason.hpp"

namespace troupe::gpu {

/// A change of low rank to one tensor of a model, which is a part of a matrix W that a device
/// multiplies with: (x A) B is added to some columns of x W.
struct low_rank {
  bool back = false;               // W is sublayer_weights::back, else ::wide
  std::uint64_t first_column = 0;  // of W: the tensor's
  std::uint64_t in = 0, columns = 0;
  std::uint32_t rank = 0;
  std::vector<float> a;  // [in, rank]
  std::vector<float> b;  // [rank, columns], times the adapter's scale
};

/// A LoRA adapter of one model. It does not change, and devices may share it.
struct adapter {
  std::filesystem::path folder;
  // Whose keys and values a page of a cache has: no other adapter of this process has the same, so
  // that a folder with other values is another adapter. Not empty.
  std::string key;
  std::uint32_t rank = 0;
  double scale = 1;           // lora_alpha / rank, or / sqrt(rank) (use_rslora)
  std::string base_sha256;    // of the base that it was trained on; empty: not recorded
  std::string sha256;         // of its files, for users; read_adapter() leaves it empty
  std::uint64_t tensors = 0;  // that are changed
  // By sublayers of the model: 2i is the attention of layer i, 2i + 1 its MLP.
  std::vector<std::vector<low_rank>> sublayers;
  inference_model model;  // that it was read for

  /// Bytes of its values in memory.
  std::uint64_t bytes() const;
  /// Has `m` the matrices that it changes?
  bool fits(const inference_model& m) const;
};
/// Null: the base alone.
using adapter_ref = std::shared_ptr<const adapter>;

inline constexpr std::uint32_t max_adapter_rank = 4096;

/// The adapter of a folder of PEFT (adapter_config.json, adapter_model.safetensors) for a model.
/// `base_sha256` is called if the files record the hash of their base: the SHA-256, in hexadecimal
/// digits, of the model's weights.
///
/// Refuses, naming file and key or tensor, all that is not computed: types other than LORA, biases,
/// ranks of single modules, embeddings, and so on; tensors that are missing, left over, of another
/// shape or not finite; another base. A folder is never read in part.
expected<adapter> read_adapter(const std::filesystem::path& folder, const inference_model& m,
                               const std::function<expected<std::string>()>& base_sha256);

/// SHA-256, in hexadecimal digits, of adapter_config.json and then adapter_model.safetensors.
expected<std::string> sha256_of_adapter(const std::filesystem::path& folder);

/// The adapter of a folder for a model whose folder is `base`, with the hash of its files. Fails as
/// read_adapter().
expected<adapter_ref> open_adapter(const std::filesystem::path& folder, const inference_model& m,
                                   const std::filesystem::path& base);

}  // namespace troupe::gpu
