#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/base/text_range.hpp"
#include "text/jinja/work.hpp"

namespace troupe::gpu::jinja {

/// A text that knows which of its bytes come from a message. Positions are in bytes unless a name
/// has "characters"; a byte that is not UTF-8 is a character of its own.
class text {
 public:
  text() = default;
  text(std::string bytes, bool from_message = false);
  text(const char* bytes) : text{std::string{bytes}} {}

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  /// Bytes from a message: sorted, disjoint, not adjacent.
  const std::vector<text_range>& from_message() const { return from_message_; }
  bool mixed() const { return !from_message_.empty(); }

  void add(const text& more);
  void add_plain(std::string_view template_text) { bytes_ += template_text; }
  text part(std::size_t begin, std::size_t end) const;
  bool operator==(const text& other) const { return bytes_ == other.bytes_; }
  /// Python's Markup, which the filters `safe` and `escape` make: what is added to it is escaped.
  bool markup() const { return markup_; }
  text as_markup(bool yes = true) const;

 private:
  std::string bytes_;
  std::vector<text_range> from_message_;
  bool markup_ = false;
};

/// Bytes of the character that begins there.
std::size_t character_size(std::string_view s, std::size_t at);
std::size_t count_characters(std::string_view s);
/// Where characters begin, and the end.
std::vector<std::size_t> character_starts(std::string_view s, work& w);
/// ASCII only.
constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
/// Python's str.isspace() of one character.
bool is_space(std::string_view character);

enum class sides { left, right, both };
/// Without these characters at its ends; without `characters`: white space.
text stripped(const text& t, const std::optional<std::string>& characters, sides where);
/// Where `what` is, from `begin` on.
std::size_t find_in(std::string_view in, std::string_view what, std::size_t begin = 0);
/// limit < 0: all.
text replaced(const text& t, const text& what, const text& by, std::int64_t limit, work& w);
/// At a separator, or at white space. limit < 0: as often as possible.
std::vector<text> split(const text& t, const std::optional<std::string>& separator,
                        std::int64_t limit, work& w);
std::vector<text> split_from_right(const text& t, const std::optional<std::string>& separator,
                                   std::int64_t limit, work& w);
std::vector<text> split_lines(const text& t, bool keep_ends, work& w);
text joined(const std::vector<text>& parts, const text& between, work& w);
text repeated(const text& t, std::int64_t times, work& w);
/// Each character by what the function makes of it; `first`: it begins a word. By default the whole
/// text is one.
text mapped(
    const text& t, const std::function<std::string(std::string_view, bool first)>& map,
    const std::function<bool(std::string_view)>& in_word = [](auto) { return true; });

/// One character in another case, by Unicode's full mapping: it may become several. In lower case
/// a sigma depends on those around it, which lower() knows.
std::string upper_of(std::string_view character);
std::string lower_of(std::string_view character);
std::string title_of(std::string_view character);
enum class letter_case { none, lower, upper, title };
letter_case letter_case_of(std::string_view character);
/// Is it passed over where the case of a letter depends on the letters around it?
bool is_ignored_by_cases(std::string_view character);
/// \w of Python's regular expressions: letters, numbers and _.
bool is_of_word(std::string_view character);
/// Python's str.isdigit() of one character.
bool is_any_digit(std::string_view character);
/// Does Python print it as it is?
bool is_printable(std::string_view character);
text upper(const text& t);
text lower(const text& t);
/// All letters that have a case have this one, and there is at least one.
bool is_upper(const text& t);
bool is_lower(const text& t);
/// The first character in title case, the others in lower.
text capitalized(const text& t);
/// Each word capitalized; words are runs of letters that have a case.
text titled(const text& t);
/// The same as the filter does it: words are what is between white space, and - ( { [ <; their
/// first characters are in upper case.
text titled_by_filter(const text& t);
/// & < > ' and " as in HTML.
text escaped(const text& t);

}  // namespace troupe::gpu::jinja
