#pragma once

#include <algorithm>
#include <string>
#include <type_traits>
#include <variant>

#include "formats/parse/reader.hpp"
#include "messages/admission/job_keys.hpp"

// Reads the keys of a table (messages/admission/job_keys.hpp).

namespace troupe::formats {

template <class Field>
bool read_field(map_reader& map, std::string_view key, Field& out, admission::range valid,
                std::span<const std::string> words, need n) {
  if constexpr (std::is_same_v<Field, std::string>) {
    return words.empty() ? map.read(key, out, n) : map.read_choice(key, out, words, n);
  } else if constexpr (std::is_enum_v<Field>) {
    std::string name;
    if (!map.read_choice(key, name, words, n)) return false;
    out = static_cast<Field>(std::ranges::find(words, name) - words.begin());
    return true;
  } else if constexpr (std::is_same_v<Field, double>) {
    return map.read(key, out, valid, n);
  } else if constexpr (std::is_integral_v<Field> && !std::is_same_v<Field, bool>) {
    return map.read_whole<Field>(key, out, static_cast<Field>(valid.low),
                                 static_cast<Field>(valid.high), n);
  } else if constexpr (requires { out.value(); }) {
    typename Field::value_type x{};
    if (!read_field(map, key, x, valid, words, n)) return false;
    out = x;
    return true;
  } else {
    return map.read(key, out);
  }
}

/// Reads the keys that have a field, in the table's order, and declares those that are read by
/// functions of their own, so that they are known. Returns whether the file has any of them.
template <class T>
bool read_keys(map_reader& map, const admission::key_table<T>& keys, T& out) {
  bool any = false;
  for (const auto& k : keys) {
    const auto n = k.use.required ? need::required : need::optional;
    any |= map.find(k.name, n) != nullptr;
    std::visit(
        [&](const auto& field) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(field)>, std::monostate>)
            read_field(map, k.name, field(out), k.valid, k.words, n);
        },
        k.field);
  }
  return any;
}

}  // namespace troupe::formats
