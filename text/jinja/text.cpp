#include "text/jinja/text.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include "text/base/characters.hpp"

namespace troupe::gpu::jinja {

text::text(std::string bytes, bool from_message) : bytes_{std::move(bytes)} {
  if (from_message && !bytes_.empty()) from_message_.push_back({0, bytes_.size()});
}

/// Ranges that touch are joined, so their number does not grow with the number of additions.
void text::add(const text& more) {
  const auto offset = bytes_.size();
  bytes_ += more.bytes_;
  for (const auto& r : more.from_message_) {
    const text_range moved{r.begin + offset, r.end + offset};
    if (!from_message_.empty() && from_message_.back().end == moved.begin)
      from_message_.back().end = moved.end;
    else
      from_message_.push_back(moved);
  }
}

/// O(log n) to find the first range, for templates that cut a long text into many parts.
text text::part(std::size_t begin, std::size_t end) const {
  text out;
  if (begin >= end) return out;
  out.bytes_ = bytes_.substr(begin, end - begin);
  auto at = std::partition_point(from_message_.begin(), from_message_.end(),
                                 [&](const text_range& r) { return r.end <= begin; });
  for (; at != from_message_.end() && at->begin < end; ++at)
    out.from_message_.push_back(
        {std::max(at->begin, begin) - begin, std::min(at->end, end) - begin});
  return out;
}

text text::as_markup(bool yes) const {
  text out = *this;
  out.markup_ = yes;
  return out;
}

/// A byte that is no UTF-8 counts as one character, so every loop over characters makes progress
/// and keeps the bytes of a message as they are.
std::size_t character_size(std::string_view s, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[at + i]); };
  const unsigned char first = byte(0);
  const std::size_t size = first < 0x80             ? 1
                           : (first & 0xE0) == 0xC0 ? 2
                           : (first & 0xF0) == 0xE0 ? 3
                           : (first & 0xF8) == 0xF0 ? 4
                                                    : 1;
  if (at + size > s.size()) return 1;
  for (std::size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 1;
  return size;
}

std::size_t count_characters(std::string_view s) {
  std::size_t n = 0;
  for (std::size_t at = 0; at < s.size(); at += character_size(s, at)) ++n;
  return n;
}

std::vector<std::size_t> character_starts(std::string_view s, work& w) {
  w.steps(s.size() / 64);
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < s.size(); at += character_size(s, at)) starts.push_back(at);
  starts.push_back(s.size());
  return starts;
}

namespace {

/// The character that ends at `end`, which is not 0. Bytes that only go on are passed first: alone,
/// each counts as a character.
std::size_t start_before(std::string_view s, std::size_t end) {
  std::size_t back = 1;
  while (back < 4 && back < end && (static_cast<unsigned char>(s[end - back]) & 0xC0) == 0x80)
    ++back;
  return character_size(s.substr(0, end), end - back) == back ? end - back : end - 1;
}

std::set<std::string_view> characters_of(std::string_view all) {
  std::set<std::string_view> set;
  std::string_view last;
  for (std::size_t at = 0; at < all.size();) {
    const auto one = all.substr(at, character_size(all, at));
    if (one != last) set.insert(one);
    last = one;
    at += one.size();
  }
  return set;
}

/// Bytes of the line end there; 0: none.
std::size_t line_end(std::string_view s, std::size_t at) {
  if (s.substr(at, 2) == "\r\n") return 2;
  const char c = s[at];
  if ((c >= '\n' && c <= '\r') || (c >= '\x1c' && c <= '\x1e')) return 1;
  const auto size = character_size(s, at);
  const auto one = s.substr(at, size);
  return one == "\u0085" || one == "\u2028" || one == "\u2029" ? size : 0;
}

}  // namespace

/// White space of Python's str.isspace(), which has U+001C to U+001F besides that of Unicode.
bool is_space(std::string_view character) {
  const char c = character[0];
  return (c >= '\x1c' && c <= '\x1f') || leading_space(character) == character.size();
}

/// Like str.strip(): `characters` is a set, not a prefix or suffix.
text stripped(const text& t, const std::optional<std::string>& characters, sides where) {
  const std::string_view s = t.bytes();
  const std::set<std::string_view> set =
      characters ? characters_of(*characters) : std::set<std::string_view>{};
  const auto goes = [&](std::string_view one) {
    return characters ? set.contains(one) : is_space(one);
  };
  std::size_t begin = 0, end = s.size();
  while (where != sides::right && begin < end) {
    const auto size = character_size(s, begin);
    if (!goes(s.substr(begin, size))) break;
    begin += size;
  }
  while (where != sides::left && end > begin) {
    const auto start = start_before(s, end);
    if (!goes(s.substr(start, end - start))) break;
    end = start;
  }
  return t.part(begin, end);
}

std::size_t find_in(std::string_view in, std::string_view what, std::size_t begin) {
  if (begin > in.size()) return in.npos;
  if (what.empty()) return begin;
  // glibc's is linear; std::string's is not for texts made to be slow.
  const auto* found = ::memmem(in.data() + begin, in.size() - begin, what.data(), what.size());
  return found ? static_cast<std::size_t>(static_cast<const char*>(found) - in.data()) : in.npos;
}

/// Each inserted copy keeps its own origin: text of the template within a message stays the
/// template's.
text replaced(const text& t, const text& what, const text& by, std::int64_t limit, work& w) {
  const std::string_view s = t.bytes();
  text out;
  std::size_t from = 0, at = 0;
  for (std::int64_t n = 0; limit < 0 || n < limit; ++n) {
    const auto found = find_in(s, what.bytes(), at);
    if (found == s.npos) break;
    w.bytes(by.size() + found - from + sizeof(text_range));
    out.add(t.part(from, found));
    out.add(by);
    from = found + what.size();
    at = from;
    // Nothing is before each character, and at the end.
    if (what.empty()) {
      if (at >= s.size()) break;
      at += character_size(s, at);
    }
  }
  w.bytes(s.size() - from);
  out.add(t.part(from, s.size()));
  return out;
}

namespace {

/// Runs of white space separate, and none at the ends makes an empty part. The rest behind the
/// limit keeps its white space at the end, as in Python.
std::vector<text> split_at_space(const text& t, std::int64_t limit, work& w) {
  const std::string_view s = t.bytes();
  std::vector<text> parts;
  std::size_t at = 0;
  const auto skip = [&](bool spaces) {
    while (at < s.size()) {
      const auto size = character_size(s, at);
      if (is_space(s.substr(at, size)) != spaces) break;
      at += size;
    }
  };
  for (skip(true); at < s.size(); skip(true)) {
    w.bytes(sizeof(text));
    const auto begin = at;
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) >= limit) {
      parts.push_back(stripped(t.part(begin, s.size()), std::nullopt, sides::left));
      break;
    }
    skip(false);
    parts.push_back(t.part(begin, at));
  }
  return parts;
}

/// The same from the right: the rest before the limit keeps its white space at the beginning.
std::vector<text> split_at_space_from_right(const text& t, std::int64_t limit, work& w) {
  const std::string_view s = t.bytes();
  std::vector<text> parts;
  std::size_t end = s.size();
  const auto skip = [&](bool spaces) {
    while (end > 0) {
      const auto start = start_before(s, end);
      if (is_space(s.substr(start, end - start)) != spaces) break;
      end = start;
    }
  };
  for (skip(true); end > 0; skip(true)) {
    w.bytes(sizeof(text));
    const auto behind = end;
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) >= limit) {
      parts.push_back(t.part(0, behind));
      break;
    }
    skip(false);
    parts.push_back(t.part(end, behind));
  }
  std::ranges::reverse(parts);
  return parts;
}

}  // namespace

/// With a separator, two in a row have an empty part between them, unlike white space.
std::vector<text> split(const text& t, const std::optional<std::string>& separator,
                        std::int64_t limit, work& w) {
  w.bytes(t.size());
  if (!separator) return split_at_space(t, limit, w);
  if (separator->empty()) fail("split: found an empty separator, expected a text");
  std::vector<text> parts;
  std::size_t from = 0;
  while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
    const auto found = find_in(t.bytes(), *separator, from);
    if (found == std::string::npos) break;
    w.bytes(sizeof(text));
    parts.push_back(t.part(from, found));
    from = found + separator->size();
  }
  parts.push_back(t.part(from, t.size()));
  return parts;
}

/// Overlapping matches of a separator such as "aa" are taken from the right, as in Python: the text
/// is searched backwards, in linear time.
std::vector<text> split_from_right(const text& t, const std::optional<std::string>& separator,
                                   std::int64_t limit, work& w) {
  w.bytes(2 * t.size());
  if (!separator) return split_at_space_from_right(t, limit, w);
  if (separator->empty()) fail("split: found an empty separator, expected a text");
  const std::string backwards{t.bytes().rbegin(), t.bytes().rend()};
  const std::string what{separator->rbegin(), separator->rend()};
  std::vector<text> parts;
  std::size_t from = 0;
  while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
    const auto found = find_in(backwards, what, from);
    if (found == std::string::npos) break;
    w.bytes(sizeof(text));
    parts.push_back(t.part(t.size() - found, t.size() - from));
    from = found + what.size();
  }
  parts.push_back(t.part(0, t.size() - from));
  std::ranges::reverse(parts);
  return parts;
}

/// Line ends of str.splitlines(), which are more than \n. An end at the very end makes no empty
/// line.
std::vector<text> split_lines(const text& t, bool keep_ends, work& w) {
  const std::string_view s = t.bytes();
  w.bytes(s.size());
  std::vector<text> lines;
  std::size_t from = 0;
  for (std::size_t at = 0; at < s.size();) {
    const auto end = line_end(s, at);
    if (end == 0) {
      at += character_size(s, at);
      continue;
    }
    w.bytes(sizeof(text));
    lines.push_back(t.part(from, keep_ends ? at + end : at));
    from = at += end;
  }
  if (from < s.size()) lines.push_back(t.part(from, s.size()));
  return lines;
}

text joined(const std::vector<text>& parts, const text& between, work& w) {
  text out;
  bool first = true;
  for (const auto& p : parts) {
    w.bytes(p.size() + between.size() + sizeof(text_range));
    if (!first) out.add(between);
    first = false;
    out.add(p);
  }
  return out;
}

/// Charged as a whole before the first copy, so a huge number fails at once.
text repeated(const text& t, std::int64_t times, work& w) {
  text out;
  if (t.empty() || times <= 0) return out;
  w.bytes_times(t.size() + t.from_message().size() * sizeof(text_range), times);
  for (std::int64_t i = 0; i < times; ++i) out.add(t);
  return out;
}

/// Changes a text character by character, which is what keeps the origin of each one even where the
/// result has another size. `first` is true at the beginning and behind a character out of a word.
text mapped(const text& t, const std::function<std::string(std::string_view, bool first)>& map,
            const std::function<bool(std::string_view)>& in_word) {
  const std::string_view s = t.bytes();
  text out;
  bool first = true;
  auto source = t.from_message().begin();
  for (std::size_t at = 0; at < s.size();) {
    const auto size = character_size(s, at);
    const auto one = s.substr(at, size);
    while (source != t.from_message().end() && source->end <= at) ++source;
    const bool from_message = source != t.from_message().end() && source->begin < at + size;
    out.add(text{map(one, first), from_message});
    first = !in_word(one);
    at += size;
  }
  return out;
}

text upper(const text& t) {
  return mapped(t, [](auto one, bool) { return upper_of(one); });
}

namespace {

/// Does the sigma at `at` end a word? A letter is before it and none behind it; signs that do not
/// separate words, such as accents and apostrophes, are passed over.
bool ends_word(std::string_view s, std::size_t at) {
  std::size_t begin = at, end = at + character_size(s, at);
  std::string_view one;
  for (;; begin -= one.size()) {
    if (begin == 0) return false;
    const auto start = start_before(s, begin);
    one = s.substr(start, begin - start);
    if (!is_ignored_by_cases(one)) break;
  }
  if (letter_case_of(one) == letter_case::none) return false;
  for (; end < s.size(); end += one.size()) {
    one = s.substr(end, character_size(s, end));
    if (!is_ignored_by_cases(one)) return letter_case_of(one) == letter_case::none;
  }
  return true;
}

/// A character of the text in lower case. Only sigma looks at those around it.
std::string lower_in(std::string_view s, std::string_view one) {
  if (one != "\u03a3") return lower_of(one);
  return ends_word(s, static_cast<std::size_t>(one.data() - s.data())) ? "\u03c2" : "\u03c3";
}

/// Are all letters that have a case of this one, and is there any?
bool has_only(const text& t, letter_case wanted) {
  const std::string_view s = t.bytes();
  bool any = false;
  for (std::size_t at = 0; at < s.size(); at += character_size(s, at)) {
    const auto one = letter_case_of(s.substr(at, character_size(s, at)));
    if (one != letter_case::none && one != wanted) return false;
    any = any || one == wanted;
  }
  return any;
}

}  // namespace

text lower(const text& t) {
  const std::string_view s = t.bytes();
  return mapped(t, [s](auto one, bool) { return lower_in(s, one); });
}

bool is_upper(const text& t) {
  return has_only(t, letter_case::upper);
}

bool is_lower(const text& t) {
  return has_only(t, letter_case::lower);
}

text capitalized(const text& t) {
  const std::string_view s = t.bytes();
  return mapped(t, [s](auto one, bool first) { return first ? title_of(one) : lower_in(s, one); });
}

text titled(const text& t) {
  const std::string_view s = t.bytes();
  return mapped(
      t, [s](auto one, bool first) { return first ? title_of(one) : lower_in(s, one); },
      [](auto one) { return letter_case_of(one) != letter_case::none; });
}

/// The filter splits at white space, hyphens and opening brackets, and makes upper case, not title
/// case, of the first character; the method splits at all that has no case. A sigma does not see
/// the word's first letter.
text titled_by_filter(const text& t) {
  const std::string_view s = t.bytes();
  std::size_t rest = 0;  // of the word, behind its first character
  return mapped(
      t,
      [s, &rest](auto one, bool first) {
        if (!first) return lower_in(s.substr(rest), one);
        rest = static_cast<std::size_t>(one.data() - s.data()) + one.size();
        return upper_of(one);
      },
      [](std::string_view one) {
        return !is_space(one) && (one.size() > 1 || !std::strchr("-({[<", one[0]));
      });
}

/// Entities of markupsafe; a text that is markup already is not escaped twice.
text escaped(const text& t) {
  if (t.markup()) return t;
  const auto one = [](std::string_view c, bool) -> std::string {
    if (c == "&") return "&amp;";
    if (c == "<") return "&lt;";
    if (c == ">") return "&gt;";
    if (c == "'") return "&#39;";
    return c == "\"" ? "&#34;" : std::string{c};
  };
  return mapped(t, one).as_markup();
}

}  // namespace troupe::gpu::jinja
