#include "formats/parse/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "messages/base/invariant.hpp"

namespace troupe::formats {

namespace {

// Readers serve people: the first error of a file is reported with its line, its path in the file,
// the found value and the expected one, and with the nearest known name if there is one. Later
// errors are often consequences of the first and are dropped.
char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// Case-insensitive edit distance of two short words; a transposition of neighbors counts once.
// Damerau's distance restricted to neighbours, by dynamic programming over three rows.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min(
          {row[j] + 1, next[j - 1] + 1, row[j - 1] + (lower(a[i - 1]) != lower(b[j - 1]))});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
          lower(a[i - 2]) == lower(b[j - 1]))
        next[j] = std::min(next[j], before[j - 2] + 1);
    }
    std::swap(before, row);
    std::swap(row, next);
  }
  return row[b.size()];
}

/// The words of a text as a list of a file: "[python3, train.py]".
std::string as_list(const value& v) {
  constexpr std::string_view plain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-/ ";
  const auto& text = v.text;
  const bool simple = v.what == value::kind::scalar && text.find(' ') != text.npos &&
                      text.size() < 100 && text.find_first_not_of(plain) == text.npos;
  if (!simple) return "[one, two]";
  std::string list;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find(' ', at), text.size());
    if (end > at) list += (list.empty() ? "" : ", ") + text.substr(at, end - at);
    at = end + 1;
  }
  return "[" + list + "]";
}

std::string joined(std::span<const std::string> words) {
  return fmt::format("{}", fmt::join(words.begin(), words.end(), ", "));
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view found,
                                        std::span<const std::string> known) {
  if (found.empty() || found.size() > 64) return std::nullopt;
  // One letter in four may differ: words that differ more probably mean something else.
  std::size_t best = 1 + std::max<std::size_t>(1, (found.size() + 1) / 4);
  best = std::min(best, found.size());
  std::optional<std::string> name;
  for (const auto& k : known) {
    const auto d = distance(found, k);
    if (d < best) {
      best = d;
      name = k;
    }
  }
  if (name) return name;
  // A prefix counts too: A100 for A100-40GB.
  for (const auto& k : known)
    if (found.size() >= 3 && k.size() > found.size() &&
        distance(found, std::string_view{k}.substr(0, found.size())) == 0)
      return k;
  return std::nullopt;
}

// A long list of known names would hide the error.
std::string hint(std::string_view found, std::span<const std::string> known) {
  if (const auto name = nearest_name(found, known))
    return fmt::format("; did you mean '{}'?", *name);
  if (known.empty() || known.size() > 30) return "";
  return fmt::format("; known: {}", joined(known));
}

std::string inside(std::string_view place, std::string_view key) {
  return place.empty() ? shown(key) : fmt::format("{}.{}", place, shown(key));
}

std::string inside(std::string_view place, std::size_t index) {
  return fmt::format("{}[{}]", place, index);
}

std::string describe(const value& v) {
  switch (v.what) {
    case value::kind::nothing:
      return "nothing";
    case value::kind::list:
      return "a list";
    case value::kind::map:
      return "a map";
    case value::kind::scalar:
      break;
  }
  return fmt::format("{}'{}'", v.quoted ? "the text " : "", shown(v.text));
}

// from_chars: the same in every locale. It accepts no blanks, no hexadecimal and no thousands
// separators; infinities and NaN are excluded.
std::optional<double> parse_number(std::string_view text) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  double x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(x))
    return std::nullopt;
  return x;
}

// Bounds a single text; the whole job has a bound of its own (messages/admission).
bool read_text_value(findings& found, const value& v, std::string_view place, std::string& out) {
  if (v.what != value::kind::scalar) {
    found.add(v.line, place, "found {}, expected text", describe(v));
    return false;
  }
  if (v.text.size() > 65536) {
    found.add(v.line, place, "text longer than 64 KiB");
    return false;
  }
  out = v.text;
  return true;
}

bool read_number(findings& found, const value& v, std::string_view place, double& out, range r) {
  const auto x = v.what == value::kind::scalar && !v.quoted ? parse_number(v.text) : std::nullopt;
  if (!x || !r.contains(*x)) {
    found.add(v.line, place, "found {}, expected {}", describe(v),
              admission::expected_number(r, "a number"));
    return false;
  }
  out = *x;
  return true;
}

void findings::add_missing(int line, std::string_view place, std::string_view key) {
  const bool same = first_ && !missing_.empty() && missing_line_ == line && place_ == place;
  if (!good() && !same) return;
  if (std::ranges::find(missing_, key) != missing_.end()) return;
  missing_.emplace_back(key);
  missing_line_ = line;
  place_ = place;
  std::string others;
  for (std::size_t i = 1; i < missing_.size(); ++i)
    others += fmt::format("{} '{}'", i > 1 ? "," : ", and", missing_[i]);
  first_ = complaint(file_, line, place, fmt::format("missing key '{}'{}", missing_[0], others));
}

map_reader::map_reader(findings& found, const value& v, std::string place)
    : found_(found), value_(v), place_(std::move(place)) {
  TROUPE_INVARIANT(v.what != value::kind::map ||
                       (v.keys.size() == v.items.size() && v.key_lines.size() == v.items.size()),
                   "a map has a value and a line for each of its keys");
  if (v.what != value::kind::map)
    found_.add(v.line, place_, "found {}, expected a map of keys", describe(v));
}

// Marks the key as known, also where it is absent: finish() suggests from these names.
const value* map_reader::find(std::string_view key, need n) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.emplace_back(key);
  if (!found_.good()) {
    if (n == need::required && !value_.has(key)) found_.add_missing(line(), place_, key);
    return nullptr;
  }
  if (value_.has(key)) {
    const auto i = value_.index_of(key);
    if (value_.items[i].what != value::kind::nothing) return &value_.items[i];
    found_.add(value_.key_lines[i], inside(place_, key), "found nothing, expected a value");
  } else if (n == need::required) {
    complain_missing(key);
  }
  return nullptr;
}

void map_reader::complain_missing(std::string_view key) {
  // The missing key may be misspelled: report that line. Keys that were read are not misspelled.
  std::vector<std::string> unasked;
  for (const auto& k : value_.keys)
    if (std::find(known_.begin(), known_.end(), k) == known_.end()) unasked.push_back(k);
  const auto like = nearest_name(key, unasked);
  if (!like) return found_.add_missing(line(), place_, key);
  found_.add(value_.key_lines[value_.index_of(*like)], place_,
             "missing key '{}'; did you misspell it as '{}'?", key, shown(*like));
}

bool map_reader::read(std::string_view key, std::string& out, need n) {
  const auto* v = find(key, n);
  return v && read_text_value(found_, *v, inside(place_, key), out);
}

bool map_reader::read(std::string_view key, double& out, range r, need n) {
  const auto* v = find(key, n);
  return v && read_number(found_, *v, inside(place_, key), out, r);
}

bool map_reader::read(std::string_view key, std::optional<double>& out, range r) {
  double x = 0;
  if (!read(key, x, r)) return false;
  out = x;
  return true;
}

// Only the two words: YAML 1.1's yes, no, on and off are refused.
bool map_reader::read(std::string_view key, bool& out) {
  const auto* v = find(key);
  if (!v) return false;
  if (v->what == value::kind::scalar && !v->quoted && (v->text == "true" || v->text == "false")) {
    out = v->text == "true";
    return true;
  }
  return invalid(key, "found {}, expected true or false", describe(*v));
}

bool map_reader::read(std::string_view key, std::vector<std::string>& out) {
  const auto* v = find(key);
  if (!v) return false;
  if (v->what != value::kind::list)
    return invalid(key, "found {}, expected a list such as {}", describe(*v), as_list(*v));
  std::vector<std::string> words(v->items.size());
  for (std::size_t i = 0; i < words.size(); ++i)
    if (!read_text_value(found_, v->items[i], inside(inside(place_, key), i), words[i]))
      return false;
  out = std::move(words);
  return true;
}

// By way of double: exact up to 2^53, which no key exceeds. 1e3 is a whole number, too.
bool map_reader::read_integer(std::string_view key, std::int64_t& out, std::int64_t low,
                              std::int64_t high, need n) {
  const auto* v = find(key, n);
  if (!v) return false;
  const range r{static_cast<double>(low), static_cast<double>(high)};
  const auto x =
      v->what == value::kind::scalar && !v->quoted ? parse_number(v->text) : std::nullopt;
  if (!x || *x != std::floor(*x) || !r.contains(*x))
    return invalid(key, "found {}, expected {}", describe(*v),
                   admission::expected_number(r, "a whole number"));
  out = static_cast<std::int64_t>(*x);
  return true;
}

bool map_reader::read_name(std::string_view key, std::string& out, need n) {
  std::string name;
  if (!read(key, name, n)) return false;
  if (!is_name(name))
    return invalid(key,
                   "found '{}', expected a name of at most 64 letters, digits, '.', '_' and '-'",
                   shown(name));
  out = std::move(name);
  return true;
}

// Case matters, as in every other place where these words are used; the hint finds another case.
bool map_reader::read_choice(std::string_view key, std::string& out,
                             std::span<const std::string> known, need n) {
  std::string word;
  if (!read(key, word, n)) return false;
  if (std::find(known.begin(), known.end(), word) == known.end()) {
    const auto name = nearest_name(word, known);
    fail(key, "found '{}', expected one of {}{}", shown(word), joined(known),
         name ? fmt::format("; did you mean '{}'?", *name) : "");
    return false;
  }
  out = std::move(word);
  return true;
}

const value* map_reader::list(std::string_view key, std::size_t min_items, need n) {
  const auto* v = find(key, n);
  if (!v) return nullptr;
  if (v->what != value::kind::list)
    fail(key, "found {}, expected a list", describe(*v));
  else if (v->items.size() < min_items)
    fail(key, "found a list of {}, expected at least {}", v->items.size(), min_items);
  else
    return v;
  return nullptr;
}

// Unknown keys are errors: a misspelled optional key would otherwise be ignored in silence.
void map_reader::finish() {
  if (!found_.good()) return;
  for (std::size_t i = 0; i < value_.keys.size(); ++i) {
    const auto& key = value_.keys[i];
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    found_.add(value_.key_lines[i], place_, "unknown key '{}'{}", shown(key), hint(key, known_));
    return;
  }
}

int map_reader::line(std::string_view key) const {
  return value_.has(key) ? value_.items[value_.index_of(key)].line : line();
}

void map_reader::fail(std::string_view key, std::string_view problem) {
  found_.add(line(key), inside(place_, key), problem);
}

}  // namespace troupe::formats
