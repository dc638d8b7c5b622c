#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "messages/base/reason.hpp"

namespace troupe::gpu {

/// A tokenizer as all files of a folder describe it together, in the form of tokenizer.json.
struct tokenizer_document {
  std::filesystem::path file;  // for errors: the file that has the vocabulary
  nlohmann::json content;
  // The tokens before and after a text, instead of post_processor's.
  std::optional<std::vector<std::uint32_t>> before = {}, after = {};
  bool splits_special = false;  // names of special tokens are text, always
};

/// The document of a folder: tokenizer.json; else vocab.json and merges.txt; completed by
/// tokenizer_config.json, special_tokens_map.json and added_tokens.json. None: the folder has
/// neither. A setting of tokens that is not supported is refused with the file, the key and the
/// value.
expected<std::optional<tokenizer_document>> read_tokenizer_document(
    const std::filesystem::path& folder);
/// The same from vocab.json and merges.txt, whether or not there is a tokenizer.json.
expected<tokenizer_document> read_vocabulary_document(const std::filesystem::path& folder);

}  // namespace troupe::gpu
