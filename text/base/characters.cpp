#include "text/base/characters.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "messages/base/utf8.hpp"

namespace troupe::gpu {

namespace {

constexpr utf8proc_int32_t no_character = -1;

utf8proc_int32_t first_of(std::string_view text) {
  const auto c = text.empty() ? utf8_character{0, 0, false} : first_character(text);
  return c.valid ? static_cast<utf8proc_int32_t>(c.point) : no_character;
}

/// The character that ends a text, of which the first byte is the last that continues none.
utf8proc_int32_t last_of(std::string_view text) {
  for (std::size_t n = 1; n <= std::min<std::size_t>(4, text.size()); ++n) {
    const auto tail = text.substr(text.size() - n);
    if ((static_cast<unsigned char>(tail[0]) & 0xC0) == 0x80) continue;
    return first_character(tail).bytes == n ? first_of(tail) : no_character;
  }
  return no_character;
}

bool is_white_space(utf8proc_int32_t c) {
  if ((c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0) return true;
  return c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

/// \w of the regular expressions of the tokenizers library, which decides about single_word.
bool is_of_words(utf8proc_int32_t c) {
  if (c < 0) return false;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      // Joiners, and symbols that are letters in circles or squares.
      return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
             (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
             (c >= 0x1F170 && c <= 0x1F189);
  }
}

/// Marks that follow one another in the order of their classes. utf8proc exchanges neighbours,
/// which takes the square of their number.
void order_marks(std::vector<utf8proc_int32_t>& characters) {
  const auto combining = [](utf8proc_int32_t c) {
    return utf8proc_get_property(c)->combining_class;
  };
  for (auto at = characters.begin(); at != characters.end();) {
    const auto first = std::find_if(at, characters.end(), combining);
    at = std::find_if_not(first, characters.end(), combining);
    std::stable_sort(first, at, [&](auto a, auto b) { return combining(a) < combining(b); });
  }
}

/// Characters are taken apart before they are composed, whatever form they come in: some have
/// another form than their own, some must not be composed, and a mark may belong below one that is
/// composed already. The text must be UTF-8.
std::string composed_utf8(std::string_view text) {
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size());
  while (!text.empty()) {
    utf8proc_int32_t parts[32];  // the longest canonical decomposition has 4
    int boundary = 0;
    const auto n = utf8proc_decompose_char(
        first_of(text), parts, 32,
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
    characters.insert(characters.end(), parts, parts + std::max<utf8proc_ssize_t>(n, 0));
    text.remove_prefix(first_character(text).bytes);
  }
  order_marks(characters);
  const auto n =
      utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  std::string out;
  for (utf8proc_ssize_t i = 0; i < n; ++i)
    out += utf8_of(static_cast<std::uint32_t>(characters[static_cast<std::size_t>(i)]));
  return out;
}

}  // namespace

std::size_t character_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t n = first < 0xC2   ? 1
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                        : first < 0xF5 ? 4
                                       : 1;
  if (n > text.size()) return 1;
  for (std::size_t i = 1; i < n; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 1;
  return n;
}

std::string utf8_of(std::uint32_t number) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(number), bytes);
  return {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size)};
}

std::size_t leading_space(std::string_view text) {
  std::size_t n = 0;
  while (is_white_space(first_of(text.substr(n)))) n += first_character(text.substr(n)).bytes;
  return n;
}

std::size_t trailing_space(std::string_view text) {
  std::size_t n = 0;
  for (;;) {
    const auto c = last_of(text.substr(0, text.size() - n));
    if (!is_white_space(c)) return n;
    n += c < 0x80 ? 1 : c < 0x800 ? 2 : 3;
  }
}

bool begins_with_word(std::string_view text) {
  return is_of_words(first_of(text));
}

bool ends_with_word(std::string_view text) {
  return is_of_words(last_of(text));
}

/// Bytes that are not UTF-8 pass unchanged between the parts that are composed. So does U+11A7,
/// which composes with nothing, while utf8proc drops it behind a syllable of Hangul.
std::string composed(std::string_view text) {
  constexpr utf8proc_int32_t vowel = 0x11A7;
  std::string out;
  while (!text.empty()) {
    std::size_t good = 0;
    for (auto c = first_of(text); c != no_character && c != vowel; c = first_of(text.substr(good)))
      good += first_character(text.substr(good)).bytes;
    out += composed_utf8(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) break;
    out += text[0];
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace troupe::gpu
