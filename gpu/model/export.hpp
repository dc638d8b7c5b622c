#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "messages/base/reason.hpp"
#include "messages/domain/model.hpp"

namespace troupe::gpu {

struct export_wish {
  std::filesystem::path
      checkpoint;            // a checkpoint directory, or a directory of several: the newest
  std::filesystem::path to;  // a directory without a model
  std::optional<troupe::model> model;  // for a checkpoint without the model's description
  std::filesystem::path tokenizer;     // a directory with vocab.json and merges.txt; empty: none,
                                       // or bytes for a vocabulary of 256
};

struct exported {
  std::filesystem::path from;  // the checkpoint that was read
  std::uint64_t iteration = 0;
  std::uint64_t parameters = 0;
  bool of_bytes = false;  // the folder's tokens are bytes
};

/// Creates a folder that Hugging Face's from_pretrained reads as a GPT-2: config.json, the weights
/// in model.safetensors, and the tokenizer's files if there are any.
expected<exported> export_model(const export_wish& w);

}  // namespace troupe::gpu
