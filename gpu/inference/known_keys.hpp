#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Keys of a model's files that are not computed with, and the values at which they change nothing.

namespace troupe::gpu {

/// Keys of config.json that change results at any value but this one (or null).
std::span<const std::pair<const char*, nlohmann::json>> keys_of_one_value();

/// Keys of rope_scaling and rope_parameters that this type of scaling uses, or that are harmless.
std::span<const std::string_view> rope_keys(std::string_view type);
/// Does another key there change nothing at this value?
bool is_neutral_rope_key(std::string_view key, const nlohmann::json& value);

/// Keys of generation_config.json that may change answers and are not applied, in their order.
/// `positions`: the model's context. Every key that is not known counts, unless it is null.
std::vector<std::string> settings_not_applied(const nlohmann::json& generation,
                                              std::uint32_t positions);

/// How weights are quantized, by the value of quantization_config: "gptq, 4 bits".
std::string quantization_text(const nlohmann::json& config);

}  // namespace troupe::gpu
