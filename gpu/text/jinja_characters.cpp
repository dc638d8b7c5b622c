#include <utf8proc.h>

#include <map>

#include "gpu/text/characters.hpp"
#include "gpu/text/jinja_text.hpp"
#include "messages/base/utf8.hpp"

namespace troupe::gpu::jinja {

namespace {

/// The number of a character; nothing: it is a byte that is not UTF-8.
std::optional<utf8proc_int32_t> code_of(std::string_view character) {
  const auto first = first_character(character);
  if (!first.valid || first.bytes != character.size()) return std::nullopt;
  return static_cast<utf8proc_int32_t>(first.point);
}

template <class F>
std::string changed(std::string_view character, F&& change) {
  const auto number = code_of(character);
  return number ? utf8_of(static_cast<std::uint32_t>(change(*number))) : std::string{character};
}

}  // namespace

std::string upper_of(std::string_view character) {
  // Characters that become several.
  static const std::map<std::string_view, std::string_view> longer{
      {"ß", "SS"},  {"ŉ", "ʼN"},  {"ﬀ", "FF"}, {"ﬁ", "FI"}, {"ﬂ", "FL"},
      {"ﬃ", "FFI"}, {"ﬄ", "FFL"}, {"ﬅ", "ST"}, {"ﬆ", "ST"}};
  const auto found = longer.find(character);
  return found == longer.end() ? changed(character, utf8proc_toupper) : std::string{found->second};
}

std::string lower_of(std::string_view character) {
  if (character == "İ") return "i\u0307";
  return changed(character, utf8proc_tolower);
}

bool is_letter(std::string_view character) {
  const auto number = code_of(character);
  if (!number) return false;
  const auto category = utf8proc_category(*number);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

bool is_printable(std::string_view character) {
  if (character == " ") return true;
  const auto number = code_of(character);
  if (!number) return false;
  switch (utf8proc_category(*number)) {
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
