#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/value.hpp"

// Values as text: Python's str(), repr() and json.dumps().
namespace troupe::gpu::jinja {

namespace {

std::string escaped_number(char32_t number) {
  const auto n = static_cast<std::uint32_t>(number);
  return n < 0x100     ? fmt::format("\\x{:02x}", n)
         : n < 0x10000 ? fmt::format("\\u{:04x}", n)
                       : fmt::format("\\U{:08x}", n);
}

/// The number of a character; of a byte that is not UTF-8 its own.
char32_t number_of(std::string_view one) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(one[i]); };
  if (one.size() == 1) return byte(0);
  char32_t n = byte(0) & (one.size() == 2 ? 0x1F : one.size() == 3 ? 0x0F : 0x07);
  for (std::size_t i = 1; i < one.size(); ++i) n = (n << 6) | (byte(i) & 0x3F);
  return n;
}

/// Quotes of repr(): single ones, unless the text has a single and no double quote. Escapes follow
/// repr() as well, and each character keeps its origin.
text quoted(const text& t, work& w) {
  const auto& s = t.bytes();
  const char quote = s.find('\'') != s.npos && s.find('"') == s.npos ? '"' : '\'';
  w.bytes(2 * s.size());
  text out{std::string(1, quote)};
  out.add(mapped(t, [&](std::string_view one, bool) {
    const char c = one[0];
    if (c == quote) return std::string{'\\', c};
    constexpr std::string_view from = "\\\n\r\t", to = "\\nrt";
    if (const auto at = from.find(c); at != from.npos) return std::string{'\\', to[at]};
    return is_printable(one) ? std::string{one} : escaped_number(number_of(one));
  }));
  out.add_plain(std::string(1, quote));
  return out;
}

/// Generators, views and ranges are refused: Python writes their types or addresses, which are not
/// meant for a prompt. A tuple of one item has a comma.
text listed(const list& l, work& w) {
  if (l.what == list::kind::iterator || l.what == list::kind::view || l.what == list::kind::range)
    fail("writes a {}; make it a list before", type_of(value{l}));
  const bool tuple = l.what == list::kind::tuple;
  text out{tuple ? "(" : "["};
  for (std::size_t i = 0; i < l.items.size(); ++i) {
    if (i > 0) out.add_plain(", ");
    out.add(represented(l.items[i], w));
    w.bytes(out.size() / 16);
  }
  out.add_plain(tuple ? (l.items.size() == 1 ? ",)" : ")") : "]");
  return out;
}

text mapped_entries(const dictionary& d, work& w) {
  text out{"{"};
  for (std::size_t i = 0; i < d.entries.size(); ++i) {
    if (i > 0) out.add_plain(", ");
    out.add(represented(d.entries[i].first, w));
    out.add_plain(": ");
    out.add(represented(d.entries[i].second, w));
    w.bytes(out.size() / 16);
  }
  out.add_plain("}");
  return out;
}

}  // namespace

/// repr() of Python writes the shortest digits, and an exponent below 1e-4 and from 1e16 on.
std::string float_text(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  // The shortest digits that read back as this number, with Python's choice of the exponent.
  int precision = 0;
  auto digits = fmt::format("{:.0e}", d);
  while (precision < 17 && std::strtod(digits.c_str(), nullptr) != d)
    digits = fmt::format("{:.{}e}", d, ++precision);
  const auto e = digits.find('e');
  const int exponent = std::atoi(digits.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return digits;
  return fmt::format("{:.{}f}", d, std::max(1, precision - exponent));
}

text shown(const value& v, work& w) {
  if (const auto* t = v.as_text()) return *t;
  if (v.is_undefined()) return {};
  return represented(v, w);
}

text represented(const value& v, work& w) {
  w.steps(1);
  if (v.is_undefined()) return {"Undefined"};
  if (v.is_none()) return {"None"};
  if (const auto* b = v.as_bool()) return {*b ? "True" : "False"};
  if (const auto* i = v.as_integer()) return {fmt::format("{}", *i)};
  if (const auto* d = v.as_float()) return {float_text(*d)};
  if (const auto* t = v.as_text()) return quoted(*t, w);
  if (const auto* l = v.as_list()) return listed(*l, w);
  if (const auto* d = v.as_dictionary()) return mapped_entries(*d, w);
  fail("writes a {}, which is no text", type_of(v));
}

namespace {

/// Writes JSON as Python does. JSON loses the origin of single bytes: if any string in it comes
/// from a message, the whole text counts as from a message, so that no special name within it is
/// found.
class json_writer {
 public:
  json_writer(const json_style& style, work& w) : style_{style}, work_{w} {}

  text write(const value& v) {
    add(v, 0);
    return {std::move(out_), from_message_};
  }

 private:
  void put(std::string_view s) {
    work_.bytes(s.size());
    out_ += s;
  }

  void new_line(unsigned level) {
    if (!style_.indent) return;
    put("\n");
    for (unsigned i = 0; i < level; ++i) put(*style_.indent);
  }

  void add_string(const text& t) {
    from_message_ = from_message_ || t.mixed();
    const std::string_view s = t.bytes();
    put("\"");
    for (std::size_t at = 0; at < s.size();) {
      const auto size = character_size(s, at);
      add_character(s.substr(at, size));
      at += size;
    }
    put("\"");
  }

  // Only `ascii` escapes characters beyond U+007E, those above U+FFFF as a surrogate pair.
  void add_character(std::string_view one) {
    constexpr std::string_view from = "\"\\\n\r\t\b\f", to = "\"\\nrtbf";
    if (const auto at = from.find(one[0]); at != from.npos) return put(std::string{'\\', to[at]});
    const auto number = static_cast<std::uint32_t>(number_of(one));
    if (number >= 0x20 && (number < 0x7f || !style_.ascii)) return put(one);
    if (number < 0x10000) return put(fmt::format("\\u{:04x}", number));
    const auto above = number - 0x10000;
    put(fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (above >> 10), 0xDC00 + (above & 0x3FF)));
  }

  void add_float(double d) {
    put(std::isnan(d) ? "NaN" : std::isinf(d) ? (d < 0 ? "-Infinity" : "Infinity") : float_text(d));
  }

  /// Fails for what is no key of JSON.
  text key_of(const value& v) {
    if (const auto* t = v.as_text()) return *t;
    if (v.is_none()) return {"null"};
    if (const auto* b = v.as_bool()) return {*b ? "true" : "false"};
    if (v.as_integer() || v.as_float()) return shown(v, work_);
    fail("tojson: a key is a {}, expected a str", type_of(v));
  }

  void add_items(const list& l, unsigned level) {
    if (l.what != list::kind::list && l.what != list::kind::tuple)
      fail("tojson: found a {}, which JSON cannot have", type_of(value{l}));
    if (l.items.empty()) return put("[]");
    put("[");
    for (std::size_t i = 0; i < l.items.size(); ++i) {
      if (i > 0) put(style_.between_items);
      new_line(level + 1);
      add(l.items[i], level + 1);
    }
    new_line(level);
    put("]");
  }

  // Entries keep the order in which they were set, unless sort_keys asks for that of the keys.
  void add_entries(const dictionary& d, unsigned level) {
    if (d.entries.empty()) return put("{}");
    auto entries = d.entries;
    if (style_.sorted)
      std::ranges::stable_sort(entries, [&](const auto& a, const auto& b) {
        return compare(a.first, b.first, "<", work_) < 0;
      });
    put("{");
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) put(style_.between_items);
      new_line(level + 1);
      add_string(key_of(entries[i].first));
      put(style_.after_key);
      add(entries[i].second, level + 1);
    }
    new_line(level);
    put("}");
  }

  void add(const value& v, unsigned level) {
    work_.steps(1);
    if (v.is_none()) return put("null");
    if (const auto* b = v.as_bool()) return put(*b ? "true" : "false");
    if (const auto* i = v.as_integer()) return put(fmt::format("{}", *i));
    if (const auto* d = v.as_float()) return add_float(*d);
    if (const auto* t = v.as_text()) return add_string(*t);
    if (const auto* l = v.as_list()) return add_items(*l, level);
    if (const auto* d = v.as_dictionary()) return add_entries(*d, level);
    fail("tojson: found a {}, which JSON cannot have", type_of(v));
  }

  const json_style& style_;
  work& work_;
  std::string out_;
  bool from_message_ = false;
};

}  // namespace

text json_text(const value& v, const json_style& style, work& w) {
  return json_writer{style, w}.write(v);
}

}  // namespace troupe::gpu::jinja
