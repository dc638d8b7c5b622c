#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

namespace troupe::gpu {

/// A tokenizer as all files of a folder describe it together, in the form of tokenizer.json.
struct tokenizer_document {
  std::filesystem::path file;  // for errors: the file that has the vocabulary
  nlohmann::json content;
  // The tokens before and after a text, instead of post_processor's.
  std::optional<std::vector<std::uint32_t>> before = {}, after = {};
  bool splits_special = false;  // names of special tokens are text, always
};

}  // namespace troupe::gpu
