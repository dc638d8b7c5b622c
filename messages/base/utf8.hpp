#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe {

/// A character at the beginning of a text, and its bytes. Not valid: a single byte of no character.
struct utf8_character {
  std::uint32_t point = 0;  // that byte, if it is not valid
  std::size_t bytes = 1;
  bool valid = true;
};

/// Decodes strictly, as Unicode requires: no overlong forms, no surrogates, nothing beyond
/// U+10FFFF. A lenient reader of the same bytes, such as a terminal, could see another character in
/// these. `text` is not empty.
constexpr utf8_character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  const utf8_character wrong{lead, 1, false};
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return wrong;
  std::uint32_t point = lead & (0xffu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return wrong;
    point = point << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = point >= 0xd800 && point < 0xe000;
  if (point < smallest[bytes] || point > 0x10ffff || surrogate) return wrong;
  return {point, bytes, true};
}

}  // namespace troupe
