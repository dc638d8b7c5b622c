#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "messages/base/reason.hpp"

namespace troupe::gpu::special_names {

/// tokenizer_config.json of a folder; null: it has none.
expected<nlohmann::json> read_config(const std::filesystem::path& folder);

/// Names of tokens in templates: `bos_token` and the like, by tokenizer_config.json,
/// special_tokens_map.json, and what the tokenizer's class has without them.
expected<std::map<std::string, std::string>> of(const std::filesystem::path& folder,
                                                const nlohmann::json& config);

}  // namespace troupe::gpu::special_names
