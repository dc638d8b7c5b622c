#include "text/tokens/pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <optional>

#include "messages/base/refuse.hpp"

namespace troupe::gpu {

namespace {

PCRE2_SPTR units(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

/// For PCRE2, U+180E is white space, which it has not been since Unicode 6.3, nor is in Oniguruma.
/// In its place, texts and expressions have another format character of as many bytes, which is in
/// no published expression, so that pieces are the same. Nothing: the text has none.
std::optional<std::string> without_vowel_separator(std::string_view text) {
  constexpr std::string_view separator = "\u180e", stand_in = "\u206a";
  auto at = text.find(separator);
  if (at == text.npos) return std::nullopt;
  std::string out{text};
  for (; at != out.npos; at = out.find(separator, at + stand_in.size()))
    out.replace(at, separator.size(), stand_in);
  return out;
}

}  // namespace

/// Patterns are written for Oniguruma, which the tokenizers library uses; PCRE2 reads the same
/// syntax for what published files contain. UCP gives \s, \w and \d their Unicode meaning, and
/// invalid UTF-8 in a text matches nothing instead of failing the call, since text may be any
/// bytes.
expected<pattern> pattern::compile(const std::string& given) {
  const auto expression = without_vowel_separator(given).value_or(given);
  int wrong = 0;
  PCRE2_SIZE where = 0;
  auto* code =
      pcre2_compile(units(expression), expression.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &wrong, &where, nullptr);
  if (code == nullptr) {
    std::array<PCRE2_UCHAR, 128> text{};
    pcre2_get_error_message(wrong, text.data(), text.size());
    return refuse(reason::kind::malformed, "not a regular expression, at character {}: {}", where,
                  reinterpret_cast<const char*>(text.data()));
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // optional
  pattern p;
  p.code_ = std::shared_ptr<const void>{code, [code](const void*) { pcre2_code_free(code); }};
  return p;
}

/// Empty matches are not wanted, as they would make no progress. A failed match, also one beyond
/// the limits of PCRE2, leaves the rest of the text as one piece that does not match. Each call has
/// its own match data, so a pattern may be used by several threads.
void pattern::split(std::string_view text, const std::function<void(piece)>& use) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match{
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free};
  const auto changed = without_vowel_separator(text);
  const auto subject = changed ? std::string_view{*changed} : text;
  const auto find = [&](std::size_t at, std::uint32_t options) {
    return pcre2_match(code, units(subject), subject.size(), at, PCRE2_NOTEMPTY | options,
                       match.get(), nullptr);
  };
  for (std::size_t at = 0; at < text.size();) {
    int n = find(at, 0);
    // Compiled code has a small stack; the interpreter's is the heap.
    if (n == PCRE2_ERROR_JIT_STACKLIMIT) n = find(at, PCRE2_NO_JIT);
    const auto* ends = pcre2_get_ovector_pointer(match.get());
    const auto begin = n > 0 ? ends[0] : text.size();
    if (begin > at) use({text.substr(at, begin - at), false});
    if (n <= 0) break;
    use({text.substr(begin, ends[1] - begin), true});
    at = ends[1];
  }
}

}  // namespace troupe::gpu
