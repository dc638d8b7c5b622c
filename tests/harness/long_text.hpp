#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "messages/base/random.hpp"

namespace troupe::test {

/// The kinds of long_text().
constexpr std::string_view long_texts[] = {"letters", "one letter", "CJK", "base64"};

/// A text without spaces of one kind, the same in every run. An encoding by words has to merge it
/// as a whole.
inline std::string long_text(std::string_view kind, std::size_t bytes) {
  constexpr std::string_view base64 =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  random_source random{7};
  std::string text;
  while (text.size() < bytes) {
    if (kind == "one letter") text += 'a';
    if (kind == "letters") text += static_cast<char>('a' + random.below(26));
    if (kind == "base64") text += base64[random.below(64)];
    if (kind == "CJK")
      text += {'\xe4', static_cast<char>(0xb8 + random.below(8)),
               static_cast<char>(0x80 + random.below(64))};
  }
  return text;
}

}  // namespace troupe::test
