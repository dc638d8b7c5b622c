#include <algorithm>
#include <cmath>

#include "text/jinja/evaluator.hpp"

// Python's operators.
namespace troupe::gpu::jinja {

namespace {

[[noreturn]] void unsuitable(std::string_view sign, const value& a, const value& b) {
  check_defined(a);
  check_defined(b);
  fail("'{}' is not supported between {} and {}", sign, type_of(a), type_of(b));
}

/// Integers of Python grow; here they have 64 bits and an overflow is refused rather than wrapped.
/// A power of unlimited integers would be a way to exhaust memory.
[[noreturn]] std::int64_t too_large() {
  fail("computes an integer of more than 63 bits");
}

/// Bases of 0, 1 and -1 never overflow, so the loop would run for the whole exponent: they are
/// answered first. Any other base overflows within 63 rounds.
std::int64_t power_of(std::int64_t a, std::int64_t b) {
  std::int64_t out = 1;
  if (a == 0 || a == 1) return b == 0 ? 1 : a;
  if (a == -1) return b % 2 == 0 ? 1 : -1;
  for (; b > 0; --b)
    if (__builtin_mul_overflow(out, a, &out)) too_large();
  return out;
}

void check_divisor(bool zero) {
  if (zero) fail("divides by zero");
}

/// Rounded down; b is not 0. C++ rounds to zero, Python to minus infinity; the remainder follows,
/// with the sign of the divisor. The smallest integer by -1 does not fit and would trap on x86.
std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (b == -1) return a == INT64_MIN ? too_large() : -a;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

value integers(std::string_view sign, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  const auto fitting = [&](bool overflow) { return overflow ? too_large() : out; };
  if (sign == "+") return fitting(__builtin_add_overflow(a, b, &out));
  if (sign == "-") return fitting(__builtin_sub_overflow(a, b, &out));
  if (sign == "*") return fitting(__builtin_mul_overflow(a, b, &out));
  if (sign == "**" && b >= 0) return power_of(a, b);
  check_divisor(sign == "**" ? a == 0 : b == 0);
  if (sign == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (sign == "//") return quotient(a, b);
  if (sign == "%") return b == -1 ? std::int64_t{0} : a - quotient(a, b) * b;
  return std::pow(static_cast<double>(a), static_cast<double>(b));
}

/// As Python divides floats: the remainder first, then the quotient from it, moved to the nearest
/// integer. A remainder of zero has the divisor's sign, a quotient of zero that of the fraction.
/// Complex results of a power are refused.
value floats(std::string_view sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "**") {
    const auto out = std::pow(a, b);
    if (std::isnan(out) && !std::isnan(a) && !std::isnan(b))
      fail("computes a power that is no real number");
    return out;
  }
  check_divisor(b == 0);
  if (sign == "/") return a / b;
  auto rest = std::fmod(a, b);
  auto fraction = (a - rest) / b;
  if (rest == 0) {
    rest = std::copysign(0.0, b);
  } else if ((rest < 0) != (b < 0)) {
    rest += b;
    fraction -= 1;
  }
  if (sign == "%") return rest;
  if (fraction == 0) return std::copysign(0.0, a / b);
  const auto whole = std::floor(fraction);
  return fraction - whole > 0.5 ? whole + 1 : whole;
}

/// As markupsafe does: with markup on one side, the other side is escaped.
value added_texts(const text& a, const text& b, work& w) {
  w.bytes(a.size() + b.size() +
          (a.from_message().size() + b.from_message().size()) * sizeof(text_range));
  const bool markup = a.markup() || b.markup();
  text out = markup ? escaped(a) : a;
  out.add(markup ? escaped(b) : b);
  return out.as_markup(markup);
}

bool is_plain_sequence(const value& v) {
  const auto* l = v.as_list();
  return l && (l->what == list::kind::list || l->what == list::kind::tuple);
}

value added_lists(const list& a, const list& b, work& w) {
  w.bytes((a.items.size() + b.items.size()) * sizeof(value));
  w.steps((a.items.size() + b.items.size()) / 4);
  auto all = a.items;
  all.insert(all.end(), b.items.begin(), b.items.end());
  return list{std::move(all), a.what};
}

value repeated_list(const list& l, std::int64_t times, work& w) {
  std::vector<value> all;
  if (times > 0) w.bytes_times(l.items.size() * sizeof(value), times);
  for (std::int64_t i = 0; i < times && !l.items.empty(); ++i)
    all.insert(all.end(), l.items.begin(), l.items.end());
  return list{std::move(all), l.what};
}

/// Lists add to lists and tuples to tuples only; a repetition takes its number from either side.
/// There is no conversion between texts and numbers: '1' + 1 fails, and `~` is the operator for
/// that.
value sequences(std::string_view sign, const value& a, const value& b, work& w) {
  const auto *t = a.as_text(), *u = b.as_text();
  if (sign == "+" && t && u) return added_texts(*t, *u, w);
  if (sign == "%" && t) {
    const auto* l = b.as_list();
    const bool tuple = l && l->what == list::kind::tuple;
    return formatted(*t, tuple ? l->items : std::vector<value>{b}, w);
  }
  const bool lists = is_plain_sequence(a) && is_plain_sequence(b);
  if (sign == "+" && lists && a.as_list()->what == b.as_list()->what)
    return added_lists(*a.as_list(), *b.as_list(), w);
  const auto& sequence = t || is_plain_sequence(a) ? a : b;
  const auto times = (&sequence == &a ? b : a).integer_like();
  if (sign == "*" && times && sequence.as_text()) return repeated(*sequence.as_text(), *times, w);
  if (sign == "*" && times && is_plain_sequence(sequence))
    return repeated_list(*sequence.as_list(), *times, w);
  unsuitable(sign, a, b);
}

/// Where a slice begins or ends, as Python moves it into the sequence. Negative numbers count from
/// the end, and bounds outside of the sequence move to its ends, so a slice never fails for its
/// numbers. A slice backwards ends before the first item, hence -1.
std::int64_t bound_of(const value* v, std::int64_t size, bool backwards, bool first) {
  const std::int64_t low = backwards ? -1 : 0, high = backwards ? size - 1 : size;
  if (!v) return first == backwards ? high : low;
  const auto given = v->integer_like();
  if (!given) fail("a slice has a {}, expected integers", type_of(*v));
  const auto at = *given < 0 ? *given + size : *given;
  return std::clamp(at, low, high);
}

text sliced_text(const text& t, std::int64_t at, std::int64_t end, std::int64_t step,
                 const std::vector<std::size_t>& starts, work& w) {
  const auto start = [&](std::int64_t i) { return starts[static_cast<std::size_t>(i)]; };
  if (step == 1) return at < end ? t.part(start(at), start(end)) : text{};
  text out;
  for (; step > 0 ? at < end : at > end; at += step) {
    w.steps(1);
    out.add(t.part(start(at), start(at + 1)));
  }
  return out;
}

}  // namespace

value calculated(evaluator& e, std::string_view sign, const value& a, const value& b) {
  const auto i = a.integer_like(), j = b.integer_like();
  if (i && j) return integers(sign, *i, *j);
  const auto x = a.number_like(), y = b.number_like();
  if (x && y) return floats(sign, *x, *y);
  return sequences(sign, a, b, e.work());
}

value negated(const value& v) {
  check_defined(v);
  if (const auto i = v.integer_like()) return *i == INT64_MIN ? too_large() : -*i;
  if (const auto* d = v.as_float()) return -*d;
  fail("a sign before a {}, expected a number", type_of(v));
}

/// Nothing is in an undefined value, which iterates as an empty sequence in Jinja. A dictionary is
/// searched by its keys, and a text by parts rather than by characters.
bool contains(evaluator& e, const value& in, const value& what) {
  auto& w = e.work();
  if (in.is_undefined()) return false;
  if (const auto* t = in.as_text()) {
    const auto* part = what.as_text();
    if (!part) {
      check_defined(what);
      fail("looks for a {} in a str, expected a str", type_of(what));
    }
    w.steps(t->size() / 64);
    return find_in(t->bytes(), part->bytes()) != std::string::npos;
  }
  if (const auto* d = in.as_dictionary()) return d->find(what, w) != nullptr;
  const auto all = items_of(in, w);
  return std::ranges::any_of(all, [&](const value& v) { return equal(v, what, w); });
}

bool compared(evaluator& e, std::string_view sign, const value& a, const value& b) {
  auto& w = e.work();
  if (sign == "==") return equal(a, b, w);
  if (sign == "!=") return !equal(a, b, w);
  if (sign == "in") return contains(e, b, a);
  if (sign == "not in") return !contains(e, b, a);
  // Nothing is less or more than what is no number.
  const auto x = a.number_like(), y = b.number_like();
  if (x && y && (std::isnan(*x) || std::isnan(*y))) return false;
  const auto order = compare(a, b, sign, w);
  if (sign == "<") return order < 0;
  if (sign == ">") return order > 0;
  return sign == "<=" ? order <= 0 : order >= 0;
}

/// The clamped step also keeps `at` from overflowing in the loop. Positions of a text are
/// characters, found once for all items.
value sliced(const value& v, const value* first, const value* last, const value* step, work& w) {
  check_defined(v);
  const auto* t = v.as_text();
  const auto* l = v.as_list();
  if (!t && !(l && l->has_items()))
    fail("takes a slice of a {}, expected a str or a list", type_of(v));
  const auto starts = t ? character_starts(t->bytes(), w) : std::vector<std::size_t>{};
  const auto size = static_cast<std::int64_t>(t ? starts.size() - 1 : l->items.size());
  const auto by = step ? step->integer_like() : 1;
  if (!by) fail("a slice has a {}, expected integers", type_of(*step));
  if (*by == 0) fail("a slice has the step 0");
  // A longer step than the sequence takes one item.
  const auto by_items = std::clamp(*by, -size - 1, size + 1);
  auto at = bound_of(first, size, by_items < 0, true);
  const auto end = bound_of(last, size, by_items < 0, false);
  if (t) return sliced_text(*t, at, end, by_items, starts, w);
  std::vector<value> out;
  for (; by_items > 0 ? at < end : at > end; at += by_items) {
    w.bytes(sizeof(value));
    out.push_back(l->items[static_cast<std::size_t>(at)]);
  }
  return list{std::move(out), l->what};
}

}  // namespace troupe::gpu::jinja
