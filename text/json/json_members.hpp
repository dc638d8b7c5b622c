#pragma once

#include <nlohmann/json.hpp>

namespace troupe::gpu {

/// A member of an object; null: it is not there, or `all` is no object.
inline const nlohmann::json& member(const nlohmann::json& all, const char* key) {
  static const nlohmann::json nothing;
  const auto found = all.find(key);
  return found == all.end() ? nothing : *found;
}

/// A flag. One that is null counts as missing: files written by several versions of the library
/// have both.
inline bool flag_of(const nlohmann::json& all, const char* key, bool otherwise = false) {
  const auto& flag = member(all, key);
  return flag.is_null() ? otherwise : flag.get<bool>();
}

}  // namespace troupe::gpu
