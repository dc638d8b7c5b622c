#pragma once

#include <cstddef>
#include <string>

#include "messages/base/utf8.hpp"

namespace troupe {

/// The beginning of a text that has more than `max_bytes`, up to the end of a character, and how
/// long the whole is: "... [31457280 bytes, cut]".
inline std::string cut_text(std::string text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  const auto bytes = text.size();
  std::size_t end = max_bytes;
  for (std::size_t back = 1; back <= 3 && back <= max_bytes; ++back) {
    const auto c = first_character(std::string_view{text}.substr(max_bytes - back));
    if (c.valid && c.bytes > back) end = max_bytes - back;  // it goes on behind the limit
  }
  text.resize(end);
  text += "... [" + std::to_string(bytes) + " bytes, cut]";
  return text;
}

}  // namespace troupe
