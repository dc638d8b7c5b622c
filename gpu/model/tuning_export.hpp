#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "gpu/model/checkpoint.hpp"
#include "messages/base/reason.hpp"

namespace troupe::gpu {

struct folder_wish {
  std::filesystem::path to;  // a directory without a model
  bool merged = false;       // an adapter with its base, as a folder of all weights
  bool all_f32 = false;      // no weight in the base's type, if that has 16 bits
  /// Hash of a folder's weights; null: an adapter does not say which base it belongs to.
  std::function<expected<std::string>(const std::filesystem::path&)> sha256_of{};
};

struct exported_folder {
  std::string kind{};  // model, adapter or merged
  std::uint64_t parameters = 0;
  std::uint32_t rank = 0;  // of the adapter
};

/// The folder that a checkpoint's training has fine-tuned, by the arguments of the package's own
/// program; nothing: it is another training's.
expected<std::optional<std::string>> base_of(const checkpoint& from);

/// Writes the training's weights and the base's configuration, tokenizer and template to a folder:
/// all weights, those that were not trained from the base; or the adapter alone, as PEFT has them;
/// or with `merged` W + c B A, computed in 64 bits and rounded once. What is not trained has the
/// base's bytes, unless w.all_f32. Needs no Python.
expected<exported_folder> export_tuning(const folder_wish& w, const checkpoint& from,
                                        const std::string& base);

}  // namespace troupe::gpu
