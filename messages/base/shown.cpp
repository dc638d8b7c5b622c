#include "messages/base/shown.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "messages/base/utf8.hpp"

// Texts of unknown origin, as errors show them.

namespace troupe {

// Errors go to terminals, logs and web pages. A name that an attacker chose could carry escape
// sequences, look like another name through invisible characters, or turn the direction of the
// line; so everything without a visible shape is escaped, and long texts are cut.
namespace {

/// Controls, spaces that look like others or like nothing, marks of direction, and characters
/// without a shape.
// Ranges from Unicode's properties White_Space, Default_Ignorable_Code_Point, Bidi_Control and the
// controls; U+2800 is the blank Braille pattern.
bool is_invisible(std::uint32_t point) {
  constexpr std::pair<std::uint32_t, std::uint32_t> ranges[] = {
      {0x00, 0x1f},      {0x7f, 0xa0},     {0xad, 0xad},     {0x34f, 0x34f},   {0x61c, 0x61c},
      {0x115f, 0x1160},  {0x1680, 0x1680}, {0x17b4, 0x17b5}, {0x180b, 0x180f}, {0x2000, 0x200f},
      {0x2028, 0x202f},  {0x205f, 0x206f}, {0x2800, 0x2800}, {0x3000, 0x3000}, {0x3164, 0x3164},
      {0xfe00, 0xfe0f},  {0xfeff, 0xfeff}, {0xffa0, 0xffa0}, {0xfff9, 0xfffb}, {0x1d173, 0x1d17a},
      {0xe0000, 0xe0fff}};
  return std::ranges::any_of(ranges,
                             [&](const auto& r) { return point >= r.first && point <= r.second; });
}

std::string escaped(std::uint32_t point) {
  return point <= 0xff     ? fmt::format("\\x{:02x}", point)
         : point <= 0xffff ? fmt::format("\\u{:04x}", point)
                           : fmt::format("\\U{:08x}", point);
}

}  // namespace

std::string shown(std::string_view text) {
  constexpr std::size_t longest = 60;  // bytes of the text; no character is cut
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const auto c = first_character(text.substr(at));
    if (at + c.bytes > longest) return out + "...";
    if (c.valid && !is_invisible(c.point))
      out += text.substr(at, c.bytes);
    else
      out += escaped(c.point);
    at += c.bytes;
  }
  return out;
}

}  // namespace troupe
