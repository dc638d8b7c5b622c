#include "text/base/utf8_stream.hpp"

#include <cstddef>

namespace troupe::gpu {

namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

/// Bytes of the character that begins with this one; 0: none does.
std::size_t length_of(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  return first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

/// May this byte follow as the second, third or fourth? No overlong forms, no surrogates, nothing
/// above U+10FFFF.
bool may_follow(unsigned char first, std::size_t index, unsigned char byte) {
  unsigned low = 0x80, high = 0xBF;
  if (index == 1) {
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  }
  return byte >= low && byte <= high;
}

}  // namespace

/// A character that the bytes so far cannot decide is held back; a prefix that no byte can complete
/// becomes one U+FFFD, and the byte that broke it begins the next character.
std::string utf8_stream::add(std::string_view bytes) {
  const auto all = held_ + std::string{bytes};
  held_.clear();
  std::string out;
  for (std::size_t at = 0; at < all.size();) {
    const auto first = static_cast<unsigned char>(all[at]);
    const auto length = length_of(first);
    std::size_t good = 1;
    while (good < length && at + good < all.size() &&
           may_follow(first, good, static_cast<unsigned char>(all[at + good])))
      ++good;
    if (length > 0 && good == length) {
      out.append(all, at, length);
    } else if (length > 0 && at + good == all.size()) {
      held_ = all.substr(at);
      break;
    } else {
      out += replacement;
    }
    at += good;
  }
  return out;
}

/// A character that never became complete is one replacement, however many of its bytes came.
std::string utf8_stream::end() {
  if (held_.empty()) return {};
  held_.clear();
  return std::string{replacement};
}

}  // namespace troupe::gpu
