#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// Characters of UTF-8, with Unicode's properties.

namespace troupe::gpu {

/// Bytes of the character that begins a text; 1 where there is no UTF-8. The text is not empty.
std::size_t character_bytes(std::string_view text);

/// The character of a number that has one.
std::string utf8_of(std::uint32_t number);

/// Bytes of the white space (Unicode's White_Space) that begins or ends a text.
std::size_t leading_space(std::string_view text);
std::size_t trailing_space(std::string_view text);

/// Does a text begin or end with a character of words: a letter, mark, digit, connector (_) or
/// joiner? This is \w of Unicode's regular expressions.
bool begins_with_word(std::string_view text);
bool ends_with_word(std::string_view text);

/// Unicode's normal form C. Bytes that are not UTF-8 stay as they are. Linear in the text's length,
/// whatever marks it has.
std::string composed(std::string_view text);

}  // namespace troupe::gpu
