#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "messages/base/reason.hpp"

namespace troupe::gpu {

/// A folder's vocab.json and merges.txt as a tokenizer.json: of GPT-2, or of Qwen2, by
/// `tokenizer_class` in tokenizer_config.json, else by `model_type` in config.json, else GPT-2.
/// Fails for other classes, whose way to split text is not known, and for an incomplete vocabulary.
expected<nlohmann::json> read_vocabulary_files(const std::filesystem::path& folder);

}  // namespace troupe::gpu
