#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "messages/base/utf8.hpp"
#include "text/base/characters.hpp"
#include "text/jinja/text.hpp"

// The cases of letters, as Python's str has them.
namespace troupe::gpu::jinja {

namespace {

/// A character that becomes several in upper case.
struct long_case {
  std::string_view lower, upper, title;
};
// Those of Unicode's SpecialCasing.txt that hold in all languages, in the order of their numbers,
// which is that of their bytes.
constexpr long_case long_cases[] = {
    {"\u00df", "SS", "Ss"},
    {"\u0149", "\u02bcN", "\u02bcN"},
    {"\u01f0", "J\u030c", "J\u030c"},
    {"\u0390", "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
    {"\u03b0", "\u03a5\u0308\u0301", "\u03a5\u0308\u0301"},
    {"\u0587", "\u0535\u0552", "\u0535\u0582"},
    {"\u1e96", "H\u0331", "H\u0331"},
    {"\u1e97", "T\u0308", "T\u0308"},
    {"\u1e98", "W\u030a", "W\u030a"},
    {"\u1e99", "Y\u030a", "Y\u030a"},
    {"\u1e9a", "A\u02be", "A\u02be"},
    {"\u1f50", "\u03a5\u0313", "\u03a5\u0313"},
    {"\u1f52", "\u03a5\u0313\u0300", "\u03a5\u0313\u0300"},
    {"\u1f54", "\u03a5\u0313\u0301", "\u03a5\u0313\u0301"},
    {"\u1f56", "\u03a5\u0313\u0342", "\u03a5\u0313\u0342"},
    {"\u1f80", "\u1f08\u0399", "\u1f88"},
    {"\u1f81", "\u1f09\u0399", "\u1f89"},
    {"\u1f82", "\u1f0a\u0399", "\u1f8a"},
    {"\u1f83", "\u1f0b\u0399", "\u1f8b"},
    {"\u1f84", "\u1f0c\u0399", "\u1f8c"},
    {"\u1f85", "\u1f0d\u0399", "\u1f8d"},
    {"\u1f86", "\u1f0e\u0399", "\u1f8e"},
    {"\u1f87", "\u1f0f\u0399", "\u1f8f"},
    {"\u1f88", "\u1f08\u0399", "\u1f88"},
    {"\u1f89", "\u1f09\u0399", "\u1f89"},
    {"\u1f8a", "\u1f0a\u0399", "\u1f8a"},
    {"\u1f8b", "\u1f0b\u0399", "\u1f8b"},
    {"\u1f8c", "\u1f0c\u0399", "\u1f8c"},
    {"\u1f8d", "\u1f0d\u0399", "\u1f8d"},
    {"\u1f8e", "\u1f0e\u0399", "\u1f8e"},
    {"\u1f8f", "\u1f0f\u0399", "\u1f8f"},
    {"\u1f90", "\u1f28\u0399", "\u1f98"},
    {"\u1f91", "\u1f29\u0399", "\u1f99"},
    {"\u1f92", "\u1f2a\u0399", "\u1f9a"},
    {"\u1f93", "\u1f2b\u0399", "\u1f9b"},
    {"\u1f94", "\u1f2c\u0399", "\u1f9c"},
    {"\u1f95", "\u1f2d\u0399", "\u1f9d"},
    {"\u1f96", "\u1f2e\u0399", "\u1f9e"},
    {"\u1f97", "\u1f2f\u0399", "\u1f9f"},
    {"\u1f98", "\u1f28\u0399", "\u1f98"},
    {"\u1f99", "\u1f29\u0399", "\u1f99"},
    {"\u1f9a", "\u1f2a\u0399", "\u1f9a"},
    {"\u1f9b", "\u1f2b\u0399", "\u1f9b"},
    {"\u1f9c", "\u1f2c\u0399", "\u1f9c"},
    {"\u1f9d", "\u1f2d\u0399", "\u1f9d"},
    {"\u1f9e", "\u1f2e\u0399", "\u1f9e"},
    {"\u1f9f", "\u1f2f\u0399", "\u1f9f"},
    {"\u1fa0", "\u1f68\u0399", "\u1fa8"},
    {"\u1fa1", "\u1f69\u0399", "\u1fa9"},
    {"\u1fa2", "\u1f6a\u0399", "\u1faa"},
    {"\u1fa3", "\u1f6b\u0399", "\u1fab"},
    {"\u1fa4", "\u1f6c\u0399", "\u1fac"},
    {"\u1fa5", "\u1f6d\u0399", "\u1fad"},
    {"\u1fa6", "\u1f6e\u0399", "\u1fae"},
    {"\u1fa7", "\u1f6f\u0399", "\u1faf"},
    {"\u1fa8", "\u1f68\u0399", "\u1fa8"},
    {"\u1fa9", "\u1f69\u0399", "\u1fa9"},
    {"\u1faa", "\u1f6a\u0399", "\u1faa"},
    {"\u1fab", "\u1f6b\u0399", "\u1fab"},
    {"\u1fac", "\u1f6c\u0399", "\u1fac"},
    {"\u1fad", "\u1f6d\u0399", "\u1fad"},
    {"\u1fae", "\u1f6e\u0399", "\u1fae"},
    {"\u1faf", "\u1f6f\u0399", "\u1faf"},
    {"\u1fb2", "\u1fba\u0399", "\u1fba\u0345"},
    {"\u1fb3", "\u0391\u0399", "\u1fbc"},
    {"\u1fb4", "\u0386\u0399", "\u0386\u0345"},
    {"\u1fb6", "\u0391\u0342", "\u0391\u0342"},
    {"\u1fb7", "\u0391\u0342\u0399", "\u0391\u0342\u0345"},
    {"\u1fbc", "\u0391\u0399", "\u1fbc"},
    {"\u1fc2", "\u1fca\u0399", "\u1fca\u0345"},
    {"\u1fc3", "\u0397\u0399", "\u1fcc"},
    {"\u1fc4", "\u0389\u0399", "\u0389\u0345"},
    {"\u1fc6", "\u0397\u0342", "\u0397\u0342"},
    {"\u1fc7", "\u0397\u0342\u0399", "\u0397\u0342\u0345"},
    {"\u1fcc", "\u0397\u0399", "\u1fcc"},
    {"\u1fd2", "\u0399\u0308\u0300", "\u0399\u0308\u0300"},
    {"\u1fd3", "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
    {"\u1fd6", "\u0399\u0342", "\u0399\u0342"},
    {"\u1fd7", "\u0399\u0308\u0342", "\u0399\u0308\u0342"},
    {"\u1fe2", "\u03a5\u0308\u0300", "\u03a5\u0308\u0300"},
    {"\u1fe3", "\u03a5\u0308\u0301", "\u03a5\u0308\u0301"},
    {"\u1fe4", "\u03a1\u0313", "\u03a1\u0313"},
    {"\u1fe6", "\u03a5\u0342", "\u03a5\u0342"},
    {"\u1fe7", "\u03a5\u0308\u0342", "\u03a5\u0308\u0342"},
    {"\u1ff2", "\u1ffa\u0399", "\u1ffa\u0345"},
    {"\u1ff3", "\u03a9\u0399", "\u1ffc"},
    {"\u1ff4", "\u038f\u0399", "\u038f\u0345"},
    {"\u1ff6", "\u03a9\u0342", "\u03a9\u0342"},
    {"\u1ff7", "\u03a9\u0342\u0399", "\u03a9\u0342\u0345"},
    {"\u1ffc", "\u03a9\u0399", "\u1ffc"},
    {"\ufb00", "FF", "Ff"},
    {"\ufb01", "FI", "Fi"},
    {"\ufb02", "FL", "Fl"},
    {"\ufb03", "FFI", "Ffi"},
    {"\ufb04", "FFL", "Ffl"},
    {"\ufb05", "ST", "St"},
    {"\ufb06", "ST", "St"},
    {"\ufb13", "\u0544\u0546", "\u0544\u0576"},
    {"\ufb14", "\u0544\u0535", "\u0544\u0565"},
    {"\ufb15", "\u0544\u053b", "\u0544\u056b"},
    {"\ufb16", "\u054e\u0546", "\u054e\u0576"},
    {"\ufb17", "\u0544\u053d", "\u0544\u056d"},
};

struct number_range {
  std::uint32_t first, last;
};
// Characters that have a case, but are no letters by their category: Unicode's Other_Lowercase and
// Other_Uppercase.
constexpr number_range other_lower[] = {
    {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},    {0x2E0, 0x2E4},
    {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},   {0x1D78, 0x1D78},  {0x1D9B, 0x1DBF},
    {0x2071, 0x2071},   {0x207F, 0x207F},   {0x2090, 0x209C},   {0x2170, 0x217F},  {0x24D0, 0x24E9},
    {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},  {0xAB5C, 0xAB5F},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
constexpr number_range other_upper[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
// Digits that are no decimal ones, such as those in circles.
constexpr number_range other_digits[] = {
    {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
    {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
    {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};

template <std::size_t N>
bool is_in(const number_range (&ranges)[N], std::uint32_t number) {
  const auto* found = std::partition_point(std::begin(ranges), std::end(ranges),
                                           [&](const auto& r) { return r.last < number; });
  return found != std::end(ranges) && found->first <= number;
}

/// The number of a character; nothing: it is a byte that is not UTF-8.
std::optional<std::uint32_t> code_of(std::string_view character) {
  const auto first = first_character(character);
  if (!first.valid || first.bytes != character.size()) return std::nullopt;
  return first.point;
}

utf8proc_category_t category_of(std::uint32_t number) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(number));
}

std::string changed(std::string_view character, utf8proc_int32_t (*change)(utf8proc_int32_t)) {
  const auto number = code_of(character);
  if (!number) return std::string{character};
  return utf8_of(static_cast<std::uint32_t>(change(static_cast<utf8proc_int32_t>(*number))));
}

const long_case* find_long(std::string_view character) {
  if (character.size() < 2) return nullptr;
  const auto* found = std::ranges::lower_bound(long_cases, character, {}, &long_case::lower);
  return found != std::end(long_cases) && found->lower == character ? found : nullptr;
}

}  // namespace

std::string upper_of(std::string_view character) {
  const auto* several = find_long(character);
  return several ? std::string{several->upper} : changed(character, utf8proc_toupper);
}

std::string title_of(std::string_view character) {
  const auto* several = find_long(character);
  return several ? std::string{several->title} : changed(character, utf8proc_totitle);
}

std::string lower_of(std::string_view character) {
  if (character == "\u0130") return "i\u0307";
  return changed(character, utf8proc_tolower);
}

letter_case letter_case_of(std::string_view character) {
  const auto number = code_of(character);
  if (!number) return letter_case::none;
  switch (category_of(*number)) {
    case UTF8PROC_CATEGORY_LL:
      return letter_case::lower;
    case UTF8PROC_CATEGORY_LU:
      return letter_case::upper;
    case UTF8PROC_CATEGORY_LT:
      return letter_case::title;
    default:
      if (is_in(other_lower, *number)) return letter_case::lower;
      return is_in(other_upper, *number) ? letter_case::upper : letter_case::none;
  }
}

/// Unicode's Case_Ignorable: marks, formats, modifiers, and signs within words.
bool is_ignored_by_cases(std::string_view character) {
  constexpr std::string_view within_words[] = {
      "'",      ".",      ":",      "\u00b7", "\u0387", "\u055f", "\u05f4", "\u2018", "\u2019",
      "\u2024", "\u2027", "\ufe13", "\ufe52", "\ufe55", "\uff07", "\uff0e", "\uff1a"};
  const auto number = code_of(character);
  if (!number) return false;
  switch (category_of(*number)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return std::ranges::find(within_words, character) != std::end(within_words);
  }
}

bool is_of_word(std::string_view character) {
  if (character == "_") return true;
  const auto number = code_of(character);
  if (!number) return false;
  switch (category_of(*number)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      return false;
  }
}

bool is_any_digit(std::string_view character) {
  const auto number = code_of(character);
  return number && (category_of(*number) == UTF8PROC_CATEGORY_ND || is_in(other_digits, *number));
}

bool is_printable(std::string_view character) {
  if (character == " ") return true;
  const auto number = code_of(character);
  if (!number) return false;
  switch (category_of(*number)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

}  // namespace troupe::gpu::jinja
