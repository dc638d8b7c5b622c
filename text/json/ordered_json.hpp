#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace troupe::gpu {

struct json_limits {
  std::size_t levels = 0;
  /// Names of one object: one that keeps their order is searched from its begin for each.
  std::size_t names = 0;
};

/// A JSON text, or one member of the object that it is, with objects' names in the text's order.
/// Takes time in proportion to the text's length. Nothing: it is not JSON, has no such member, or
/// exceeds a limit (levels of the whole text, names of what is wanted).
std::optional<nlohmann::ordered_json> parse_in_order(std::string_view text, json_limits l,
                                                     std::optional<std::string_view> member = {});

}  // namespace troupe::gpu
