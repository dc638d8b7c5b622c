#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "messages/base/reason.hpp"
#include "messages/domain/model.hpp"

namespace troupe::gpu {

/// The weights of a program's checkpoint are the same in all forms.
enum class export_form : std::uint8_t { safetensors, pt };

struct export_wish {
  std::filesystem::path
      checkpoint;            // a checkpoint directory, or a directory of several: the newest
  std::filesystem::path to;  // a directory without a model
  // For the built-in model alone.
  std::optional<troupe::model> model{};  // for a checkpoint without the model's description
  std::filesystem::path tokenizer{};     // a directory with vocab.json and merges.txt; empty: none,
                                         // or bytes for a vocabulary of 256
  export_form form = export_form::safetensors;  // pt: of a program alone, by its caller
  // For a fine-tuned model folder alone (tuning_export.hpp).
  bool merged = false;   // an adapter with its base, as a folder of all weights
  bool best = false;     // the checkpoint of the lowest held-out loss, not the newest
  bool all_f32 = false;  // no weight in the base's type, if that has 16 bits
  /// Hash of a folder's weights; null: an adapter does not say which base it belongs to.
  std::function<expected<std::string>(const std::filesystem::path&)> sha256_of{};
};

struct exported {
  std::filesystem::path from;  // the checkpoint that was read
  std::uint64_t iteration = 0;
  std::uint64_t parameters = 0;
  bool of_bytes = false;     // the folder's tokens are bytes
  bool of_program = false;   // plain weights: no configuration and no tokenizer
  std::uint64_t frozen = 0;  // parameters of a program that are in folders of their own
  std::string kind{};        // of a fine-tuned folder: model, adapter or merged; else empty
  std::string base{};        // that folder
  std::uint32_t rank = 0;    // of its adapter
};

/// The weights in an exported folder.
inline constexpr const char* exported_weights = "model.safetensors";
inline constexpr const char* exported_pt = "model.pt";

/// Creates a folder with a checkpoint's weights in model.safetensors. One of the built-in model is
/// a folder that Hugging Face's from_pretrained reads as a GPT-2, with config.json and the
/// tokenizer's files if there are any; of a program see layer_export.hpp.
expected<exported> export_model(const export_wish& w);

}  // namespace troupe::gpu
