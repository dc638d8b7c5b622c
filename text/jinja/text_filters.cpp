#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/filters.hpp"

// Filters that make a text or a number.
namespace troupe::gpu::jinja {

namespace {

/// The input as text, as these filters take it. Jinja's filters of texts take any value and write
/// it first. Twice its bytes are charged, for the text and for the result that the filter makes of
/// it.
text as_text(evaluator& e, const value& v) {
  auto t = shown(v, e.work());
  e.work().bytes(2 * t.size());
  return t;
}

value trim(evaluator& e, const value& v, const bound& args) {
  const auto characters = args.optional_text(0);
  if (characters) e.work().maps(characters->size());
  return stripped(as_text(e, v), characters, sides::both);
}

template <text (*change)(const text&)>
value changed(evaluator& e, const value& v, const bound&) {
  const auto t = as_text(e, v);
  e.work().maps(t.size());
  return change(t);
}

value replace_filter(evaluator& e, const value& v, const bound& args) {
  return replaced(as_text(e, v), shown(args.needed(0), e.work()), shown(args.needed(1), e.work()),
                  args.integer(2, -1), e.work());
}

/// A number of spaces, or a text.
text margin_of(const bound& args, std::size_t i, std::int64_t otherwise, work& w) {
  if (args[i] && args[i]->as_text()) return *args[i]->as_text();
  return repeated(" ", args.integer(i, otherwise), w);
}

/// The added newline makes the end of the text a line of its own, as in Jinja's do_indent().
value indent(evaluator& e, const value& v, const bound& args) {
  if (!v.as_text()) check_defined(v);
  auto& w = e.work();
  const auto margin = margin_of(args, 0, 4, w);
  auto whole = as_text(e, v);
  whole.add("\n");
  auto lines = split_lines(whole, false, w);
  for (std::size_t i = args.truth(1, false) ? 0 : 1; i < lines.size(); ++i) {
    if (i > 0 && lines[i].empty() && !args.truth(2, false)) continue;
    w.bytes(margin.size() + lines[i].size());
    auto moved = margin;
    moved.add(lines[i]);
    lines[i] = std::move(moved);
  }
  return joined(lines, "\n", w);
}

/// The tojson of transformers rather than Jinja's: json.dumps() without escapes of HTML, and
/// characters beyond ASCII as they are. With an indent no space follows the comma, as the line ends
/// there.
value to_json(evaluator& e, const value& v, const bound& args) {
  json_style style;
  style.ascii = args.truth(0, false);
  style.sorted = args.truth(3, false);
  if (args[1] && !args[1]->is_none()) {
    style.indent = margin_of(args, 1, 0, e.work()).bytes();
    style.between_items = std::string(1, ',');
  }
  if (args[2] && !args[2]->is_none()) {
    const auto both = items_of(*args[2], e.work());
    const auto* between = both.size() == 2 ? both[0].as_text() : nullptr;
    const auto* after = both.size() == 2 ? both[1].as_text() : nullptr;
    if (!between || !after) fail("tojson: found separators that are not two texts");
    style.between_items = between->bytes();
    style.after_key = after->bytes();
  }
  return json_text(v, style, e.work());
}

value join_filter(evaluator& e, const value& v, const bound& args) {
  std::vector<text> parts;
  for (const auto& one : items_of(v, e.work()))
    parts.push_back(shown(args[1] ? e.item_by_path(one, *args[1]) : one, e.work()));
  return joined(parts, args[0] ? shown(*args[0], e.work()) : text{}, e.work());
}

value format_filter(evaluator& e, const value& v, const bound& args) {
  if (!args.all().named.empty()) fail("format: named values are not supported");
  return formatted(as_text(e, v), args.all().positional, e.work());
}

/// An odd space goes where str.center() puts it: to the left if the width is odd, too.
value center(evaluator& e, const value& v, const bound& args) {
  const auto t = as_text(e, v);
  const auto width = args.integer(0, 80);
  const auto left_over = width - static_cast<std::int64_t>(count_characters(t.bytes()));
  if (left_over <= 0) return t;
  const auto before = left_over / 2 + (left_over & width & 1);
  auto out = repeated(" ", before, e.work());
  out.add(t);
  out.add(repeated(" ", left_over - before, e.work()));
  return out;
}

value word_count(evaluator& e, const value& v, const bound&) {
  const auto t = as_text(e, v);
  const std::string_view s = t.bytes();
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < s.size();) {
    const auto size = character_size(s, at);
    const auto c = s.substr(at, size);
    const bool word = is_of_word(c);
    words += word && !inside;
    inside = word;
    at += size;
  }
  return words;
}

/// A text as Python's float() reads it.
std::optional<double> read_float(const text& t) {
  const auto inner = stripped(t, std::nullopt, sides::both);
  std::string_view s = inner.bytes();
  if (s.starts_with('+') && !s.substr(1).starts_with('-')) s.remove_prefix(1);
  double d = 0;
  const auto end = std::from_chars(s.data(), s.data() + s.size(), d);
  if (end.ec != std::errc{} || end.ptr != s.data() + s.size()) return std::nullopt;
  return d;
}

/// The same of int(), with 0x before it for `base` 16. Underscores between digits are not read.
std::optional<std::int64_t> read_integer(const text& t, std::int64_t base) {
  const auto inner = stripped(t, std::nullopt, sides::both);
  std::string_view s = inner.bytes();
  const bool minus = s.starts_with('-');
  if (minus || s.starts_with('+')) s.remove_prefix(1);
  if (base == 16 && (s.starts_with("0x") || s.starts_with("0X"))) s.remove_prefix(2);
  std::int64_t n = 0;
  if (s.starts_with('-')) return std::nullopt;
  const auto end = std::from_chars(s.data(), s.data() + s.size(), n, static_cast<int>(base));
  if (end.ec != std::errc{} || end.ptr != s.data() + s.size()) return std::nullopt;
  return minus ? -n : n;
}

/// Cuts the fraction off, as int() does. Numbers near 2^63 and NaN have no integer here.
std::optional<std::int64_t> whole_of(double d) {
  if (!(std::abs(d) < 9e18)) return std::nullopt;
  return static_cast<std::int64_t>(d);
}

/// A text that is no number gives the default instead of an error, as in Jinja; "1.9" gives 1.
value to_integer(evaluator&, const value& v, const bound& args) {
  const auto base = args.integer(1, 10);
  if (base < 2 || base > 36) fail("int: found the base {}, expected 2 to 36", base);
  check_defined(v);
  if (const auto i = v.integer_like()) return *i;
  std::optional<std::int64_t> made;
  if (const auto* d = v.as_float()) {
    made = whole_of(*d);
  } else if (const auto* t = v.as_text()) {
    made = read_integer(*t, base);
    if (const auto real = made ? std::nullopt : read_float(*t)) made = whole_of(*real);
  }
  return made ? value{*made} : args[0] ? *args[0] : value{std::int64_t{0}};
}

value to_float(evaluator&, const value& v, const bound& args) {
  check_defined(v);
  if (const auto d = v.number_like()) return *d;
  const auto* t = v.as_text();
  if (const auto d = t ? read_float(*t) : std::nullopt) return *d;
  return args[0] ? *args[0] : value{0.0};
}

value absolute(evaluator&, const value& v, const bound&) {
  if (const auto* d = v.as_float()) return std::abs(*d);
  const auto i = v.integer_like();
  return i && *i >= 0 ? value{*i} : negated(v);
}

/// For the method `common`, Python rounds the exact binary value to decimal digits, ties to even;
/// writing the number with that many digits and reading it back does the same, where a
/// multiplication by a power of ten would not.
value round_filter(evaluator&, const value& v, const bound& args) {
  check_defined(v);
  const auto precision = args.integer(0, 0);
  const auto method = args.optional_text(1).value_or("common");
  if (precision < -15 || precision > 15)
    fail("round: found the precision {}, expected -15 to 15", precision);
  const auto i = v.integer_like();
  const auto number = v.number_like();
  if (!number) fail("round: found a {}, expected a number", type_of(v));
  const double d = *number;
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(d * scale) / scale;
  if (method == "floor") return std::floor(d * scale) / scale;
  if (method != "common")
    fail("round: found the method '{}', expected common, ceil or floor", method);
  if (i && precision >= 0) return *i;
  if (precision < 0) {
    const auto rounded = std::nearbyint(d * scale) / scale;
    return i ? value{static_cast<std::int64_t>(rounded)} : value{rounded};
  }
  return std::strtod(fmt::format("{:.{}f}", d, precision).c_str(), nullptr);
}

constexpr named_function of_texts[] = {
    {"trim", trim, {"chars"}},
    {"upper", changed<upper>},
    {"lower", changed<lower>},
    {"capitalize", changed<capitalized>},
    {"title", changed<titled_by_filter>},
    {"string", changed<[](const text& t) { return t; }>},
    {"safe", changed<[](const text& t) { return t.as_markup(); }>},
    {"escape", changed<escaped>},
    {"e", changed<escaped>},
    {"replace", replace_filter, {"old", "new", "count"}},
    {"indent", indent, {"width", "first", "blank"}},
    {"tojson", to_json, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"join", join_filter, {"d", "attribute"}},
    {"format", format_filter, {"*"}},
    {"center", center, {"width"}},
    {"wordcount", word_count},
    {"int", to_integer, {"default", "base"}},
    {"float", to_float, {"default"}},
    {"abs", absolute},
    {"round", round_filter, {"precision", "method"}},
};

/// A conversion of formatted(): what is between % and its letter.
struct conversion {
  bool zeros = false, left = false, plus = false;
  std::int64_t width = 0, precision = -1;
  char letter = 0;
};

/// Width and precision are limited so that a short format cannot write a large text.
conversion read_conversion(std::string_view s, std::size_t& at) {
  conversion c;
  const auto number = [&] {
    std::int64_t n = 0;
    for (; at < s.size() && is_digit(s[at]) && n < 1000; ++at) n = n * 10 + s[at] - '0';
    return n;
  };
  for (; at < s.size() && (s[at] == '0' || s[at] == '-' || s[at] == '+'); ++at)
    (s[at] == '0' ? c.zeros : s[at] == '-' ? c.left : c.plus) = true;
  c.width = number();
  if (at < s.size() && s[at] == '.') {
    ++at;
    c.precision = number();
  }
  if (c.width >= 1000 || c.precision >= 100 || at >= s.size())
    fail("a format has a conversion that is not supported");
  c.letter = s[at];
  return c;
}

/// %s, %r, %d, %i and %f. Zeros of the padding go between sign and digits.
text converted(const conversion& c, const value& v, work& w) {
  text out;
  const auto i = v.integer_like();
  const auto d = v.number_like();
  if (c.letter == 's' || c.letter == 'r') {
    out = c.letter == 's' ? shown(v, w) : represented(v, w);
    if (c.precision >= 0) fail("a format has a precision of a text, which is not supported");
  } else if ((c.letter == 'd' || c.letter == 'i') && d) {
    const auto whole = i ? i : whole_of(*d);
    if (!whole) fail("a format has a number that is too large");
    out = c.plus ? fmt::format("{:+}", *whole) : fmt::format("{}", *whole);
  } else if (c.letter == 'f' && d) {
    const auto digits = c.precision < 0 ? 6 : c.precision;
    out = c.plus ? fmt::format("{:+.{}f}", *d, digits) : fmt::format("{:.{}f}", *d, digits);
  } else {
    fail("a format has '%{}' for a {}, which is not supported", c.letter, type_of(v));
  }
  const auto missing = c.width - static_cast<std::int64_t>(count_characters(out.bytes()));
  if (missing <= 0) return out;
  const bool number = c.letter != 's' && c.letter != 'r';
  auto padding = repeated(c.zeros && number && !c.left ? "0" : " ", missing, w);
  if (c.left) {
    out.add(padding);
    return out;
  }
  const bool sign =
      c.zeros && number && !out.empty() && (out.bytes()[0] == '-' || out.bytes()[0] == '+');
  text all = sign ? out.part(0, 1) : text{};
  all.add(padding);
  all.add(out.part(sign ? 1 : 0, out.size()));
  return all;
}

}  // namespace

/// Conversions and values must match in number, as in Python. One dictionary without any conversion
/// is no surplus value there either. Named conversions, %(name)s, are not supported.
text formatted(const text& format, const std::vector<value>& given, work& w) {
  const auto& s = format.bytes();
  text out;
  std::size_t from = 0, next = 0;
  for (std::size_t at = 0; at < s.size(); ++at) {
    if (s[at] != '%') continue;
    out.add(format.part(from, at));
    ++at;
    const auto c = read_conversion(s, at);
    from = at + 1;
    if (c.letter == '%') {
      out.add("%");
      continue;
    }
    if (next >= given.size()) fail("a format has more conversions than values");
    const auto one = converted(c, given[next++], w);
    w.bytes(one.size());
    out.add(one);
  }
  if (next < given.size() && !(given.size() == 1 && given[0].as_dictionary()))
    fail("a format has fewer conversions than values");
  out.add(format.part(from, s.size()));
  return out;
}

std::span<const named_function> text_filters() {
  return of_texts;
}

}  // namespace troupe::gpu::jinja
