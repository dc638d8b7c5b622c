#include "text/tokens/byte_level.hpp"

#include <array>
#include <cstdint>
#include <map>

namespace troupe::gpu {

namespace {

/// bytes_to_unicode() of GPT-2's encoder.py: printable bytes of Latin-1 stand for themselves, the
/// others for the characters from U+0100 on, so that no token has white space or control
/// characters.
std::array<std::uint32_t, 256> characters_of_bytes() {
  std::array<std::uint32_t, 256> characters{};
  std::uint32_t next = 256;
  for (std::uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    characters[b] = printable ? b : next++;
  }
  return characters;
}

}  // namespace

std::optional<std::string> byte_level_bytes(std::string_view characters) {
  static const auto bytes = [] {
    std::map<std::uint32_t, char> m;
    const auto all = characters_of_bytes();
    for (std::size_t b = 0; b < all.size(); ++b) m[all[b]] = static_cast<char>(b);
    return m;
  }();
  std::string out;
  for (std::size_t i = 0; i < characters.size(); ++i) {
    std::uint32_t c = static_cast<unsigned char>(characters[i]);
    if (c >= 0xC0 && c < 0xE0 && i + 1 < characters.size())  // all of them are below U+0800
      c = (c & 0x1F) << 6 | (static_cast<unsigned char>(characters[++i]) & 0x3F);
    const auto found = bytes.find(c);
    if (found == bytes.end()) return std::nullopt;
    out += found->second;
  }
  return out;
}

std::string byte_level_character(unsigned char byte) {
  static const auto characters = characters_of_bytes();
  const auto c = characters[byte];
  if (c < 0x80) return std::string(1, static_cast<char>(c));
  return {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
}

}  // namespace troupe::gpu
