#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "messages/base/reason.hpp"
#include "text/tokens/tokenizer.hpp"

namespace troupe::gpu {

/// The tokenizer of a model folder: tokenizer.json; else vocab.json and merges.txt; else bytes, for
/// a vocabulary of 256. tokenizer_config.json, special_tokens_map.json and added_tokens.json add to
/// the first two. Null: the folder has none. Fails for files that are malformed or not supported,
/// and for a tokenizer with tokens beyond the vocabulary.
expected<std::unique_ptr<tokenizer>> open_tokenizer(const std::filesystem::path& folder,
                                                    std::uint32_t vocabulary);
/// The end of a sentence about such a folder without a tokenizer, with what it has instead: "has no
/// tokenizer (...), only tokenizer.model, ...".
std::string missing_tokenizer_text(const std::filesystem::path& folder);
/// The tokenizer of vocab.json and merges.txt, whether or not there is a tokenizer.json.
expected<std::unique_ptr<tokenizer>> open_vocabulary(const std::filesystem::path& folder);

}  // namespace troupe::gpu
