#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

namespace troupe {

/// The bytes of a string of JSON that begins a text, with its quotes; all, if it has no end.
inline std::size_t json_string_bytes(std::string_view text) {
  for (std::size_t i = 1; i < text.size(); ++i)
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      return i + 1;
  return text.size();
}

/// A text of JSON with quotes around what Python's json reads and writes, and JSON does not have:
/// NaN, Infinity, -Infinity, and numbers beyond the range of a double. So they become texts, which
/// a reader of a number refuses and others pass over. Linear in the text's length.
inline std::string with_quoted_python_numbers(std::string_view text) {
  constexpr std::string_view words[] = {"NaN", "Infinity", "-Infinity"};
  constexpr std::size_t max_digits = 400;  // no longer number is looked at
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto* word = std::find_if(std::begin(words), std::end(words), [&](std::string_view w) {
      return text.substr(0, w.size()) == w;
    });
    const bool named = word != std::end(words);
    const bool number = !named && (text[0] == '-' || (text[0] >= '0' && text[0] <= '9'));
    std::size_t n = 0;
    if (text[0] == '"')
      n = json_string_bytes(text);
    else if (named)
      n = word->size();
    else
      n = std::min(number ? text.find_first_not_of("0123456789.eE+-", 1)
                          : text.find_first_of("\"NI-0123456789", 1),
                   text.size());
    const std::string part{text.substr(0, n)};
    const bool infinite =
        number && n <= max_digits && std::isinf(std::strtod(part.c_str(), nullptr));
    out += named || infinite ? '"' + part + '"' : part;
    text.remove_prefix(n);
  }
  return out;
}

}  // namespace troupe
