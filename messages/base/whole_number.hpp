#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace troupe {

/// A text that is nothing but a decimal integer which T can hold, in every locale.
template <class T>
std::optional<T> whole_number(std::string_view text) {
  T n = 0;
  const auto* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, n);
  return error == std::errc{} && at == end ? std::optional{n} : std::nullopt;
}

}  // namespace troupe
