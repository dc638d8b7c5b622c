#pragma once

#include <filesystem>
#include <optional>

#include "messages/base/reason.hpp"
#include "text/tokens/tokenizer_document.hpp"

namespace troupe::gpu {

/// The document of a folder: tokenizer.json; else vocab.json and merges.txt; completed by
/// tokenizer_config.json, special_tokens_map.json and added_tokens.json. None: the folder has
/// neither. A setting of tokens that is not supported is refused with the file, the key and the
/// value.
expected<std::optional<tokenizer_document>> read_tokenizer_document(
    const std::filesystem::path& folder);
/// The same from vocab.json and merges.txt, whether or not there is a tokenizer.json.
expected<tokenizer_document> read_vocabulary_document(const std::filesystem::path& folder);

}  // namespace troupe::gpu
