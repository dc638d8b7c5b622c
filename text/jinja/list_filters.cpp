#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "text/jinja/filters.hpp"

// Filters of sequences and dictionaries.
namespace troupe::gpu::jinja {

namespace {

using values = std::vector<value>;

/// Jinja's generator filters (map, select and so on). The items are computed at once, since nothing
/// can change them in between, but the result behaves as a generator: one pass, no length, always
/// true.
list lazy(values all) {
  return {std::move(all), list::kind::iterator};
}

value length(evaluator& e, const value& v, const bound&) {
  if (const auto* t = v.as_text()) e.work().steps(t->size() / 64);
  return static_cast<std::int64_t>(length_of(v));
}

/// Replaces undefined values only; with `boolean` also false ones.
value default_filter(evaluator&, const value& v, const bound& args) {
  if (!v.is_undefined() && !(args.truth(1, false) && !truth_of(v))) return v;
  return args[0] ? *args[0] : value{""};
}

value first(evaluator& e, const value& v, const bound&) {
  const auto all = items_of(v, e.work());
  return all.empty() ? value::missing("there is no first item") : all.front();
}

value last(evaluator& e, const value& v, const bound&) {
  check_defined(v);
  if (v.as_list() && !v.as_list()->has_length()) fail("last: found a generator, expected a list");
  const auto all = items_of(v, e.work());
  return all.empty() ? value::missing("there is no last item") : all.back();
}

value as_list(evaluator& e, const value& v, const bound&) {
  return list{items_of(v, e.work())};
}

value reverse(evaluator& e, const value& v, const bound&) {
  check_defined(v);
  auto all = items_of(v, e.work());
  std::reverse(all.begin(), all.end());
  if (!v.as_text()) return lazy(std::move(all));
  text out;
  for (const auto& c : all) out.add(*c.as_text());
  return out;
}

/// Jinja ignores the case of texts in sort, unique, min, max, groupby and dictsort by default.
value folded(value v, bool case_sensitive) {
  if (const auto* t = v.as_text(); t && !case_sensitive) return lower(*t);
  return v;
}

/// Key that sort() and the like compare: one attribute, or several with commas.
value key_of(evaluator& e, const value& v, const value* attributes, bool case_sensitive) {
  if (!attributes || attributes->is_none()) return folded(v, case_sensitive);
  const auto* t = attributes->as_text();
  if (!t) return folded(e.item_of(v, *attributes), case_sensitive);
  values keys;
  for (const auto& one : split(*t, ",", -1, e.work()))
    keys.push_back(folded(e.item_by_path(v, one), case_sensitive));
  return keys.size() == 1 ? keys[0] : value{list{std::move(keys)}};
}

struct keyed {
  value key, of;
};

/// In the order of the keys; equal ones stay as they are.
values sorted(evaluator& e, std::vector<keyed> all, bool backwards) {
  auto& w = e.work();
  // A comparison that fails ends the sorting, and fails once it has ended.
  std::optional<error> failed;
  std::ranges::stable_sort(all, [&](const keyed& a, const keyed& b) {
    if (failed) return false;
    try {
      const auto order = compare(a.key, b.key, "<", w);
      return backwards ? order > 0 : order < 0;
    } catch (const error& why) {
      failed = why;
      return false;
    }
  });
  if (failed) throw error{*failed};
  values out;
  for (auto& one : all) out.push_back(std::move(one.of));
  return out;
}

value sort(evaluator& e, const value& v, const bound& args) {
  std::vector<keyed> all;
  for (const auto& one : items_of(v, e.work()))
    all.push_back({key_of(e, one, args[2], args.truth(1, false)), one});
  return list{sorted(e, std::move(all), args.truth(0, false))};
}

value dictsort(evaluator& e, const value& v, const bound& args) {
  const auto by = args.optional_text(1).value_or("key");
  if (by != "key" && by != "value") fail("dictsort: found '{}', expected key or value", by);
  check_defined(v);
  const auto* d = v.as_dictionary();
  if (!d) fail("dictsort: found a {}, expected a dict", type_of(v));
  std::vector<keyed> all;
  for (const auto& [key, one] : d->entries)
    all.push_back({folded(by == "key" ? key : one, args.truth(0, false)),
                   list{{key, one}, list::kind::tuple}});
  return list{sorted(e, std::move(all), args.truth(2, false))};
}

/// Quadratic in the number of different items, as values have no hash; each comparison is charged.
value unique(evaluator& e, const value& v, const bound& args) {
  values seen, out;
  for (const auto& one : items_of(v, e.work())) {
    auto key = key_of(e, one, args[1], args.truth(0, false));
    if (std::ranges::any_of(seen, [&](const value& s) { return equal(s, key, e.work()); }))
      continue;
    seen.push_back(std::move(key));
    out.push_back(one);
  }
  return lazy(std::move(out));
}

template <bool largest>
value extreme(evaluator& e, const value& v, const bound& args) {
  value best, best_key;
  bool any = false;
  for (const auto& one : items_of(v, e.work())) {
    auto key = key_of(e, one, args[1], args.truth(0, false));
    if (any && !compared(e, largest ? ">" : "<", key, best_key)) continue;
    best = one;
    best_key = std::move(key);
    any = true;
  }
  return any ? best : value::missing("there is no item to compare");
}

value sum(evaluator& e, const value& v, const bound& args) {
  value total = args[1] ? *args[1] : value{std::int64_t{0}};
  for (const auto& one : items_of(v, e.work()))
    total = calculated(e, "+", total, args[0] ? e.item_by_path(one, *args[0]) : one);
  return total;
}

/// Unlike the method, the filter takes an undefined value for an empty dictionary.
value items(evaluator& e, const value& v, const bound&) {
  if (v.is_undefined()) return lazy({});
  const auto* d = v.as_dictionary();
  if (!d) fail("items: found a {}, expected a dict", type_of(v));
  values all;
  e.work().bytes(d->entries.size() * 4 * sizeof(value));
  for (const auto& [key, one] : d->entries) all.emplace_back(list{{key, one}, list::kind::tuple});
  return lazy(std::move(all));
}

value attr(evaluator& e, const value& v, const bound& args) {
  const auto& name = args.needed_text(0).bytes();
  // Attributes only: items are none.
  if (v.as_object() || has_method(v, name)) return e.attribute_of(v, name);
  return value::missing(fmt::format("a {} has no attribute '{}'", type_of(v), name));
}

/// The values in groups of so many, the last filled up.
value batch(evaluator& e, const value& v, const bound& args) {
  const auto size = args.integer(0, 0);
  if (!args[0] || size < 1) fail("batch: found {}, expected at least 1", size);
  values out, group;
  for (auto& one : items_of(v, e.work())) {
    if (static_cast<std::int64_t>(group.size()) == size)
      out.emplace_back(list{std::exchange(group, {})});
    group.push_back(std::move(one));
  }
  if (!group.empty()) {
    const auto missing = size - static_cast<std::int64_t>(group.size());
    if (args[1] && !args[1]->is_none()) {
      e.work().bytes_times(sizeof(value), missing);
      group.insert(group.end(), static_cast<std::size_t>(missing), *args[1]);
    }
    out.emplace_back(list{std::move(group)});
  }
  return lazy(std::move(out));
}

/// Sorted first, so equal keys are neighbours. A group shows the key of its first item as it is
/// written, although the case does not count.
value group_by(evaluator& e, const value& v, const bound& args) {
  const bool case_sensitive = args.truth(2, false);
  const auto looked_up = [&](const value& one) {
    auto found = e.item_by_path(one, args.needed(0));
    return found.is_undefined() && args[1] ? *args[1] : found;
  };
  std::vector<keyed> all;
  for (const auto& one : items_of(v, e.work()))
    all.push_back({folded(looked_up(one), case_sensitive), one});
  values groups, group;
  value key;
  const auto close = [&] {
    if (!group.empty())
      groups.emplace_back(list{{looked_up(group[0]), list{std::move(group)}}, list::kind::tuple});
    group.clear();
  };
  for (auto& one : sorted(e, std::move(all), false)) {
    auto next = folded(looked_up(one), case_sensitive);
    if (group.empty() || !equal(next, key, e.work())) close();
    key = std::move(next);
    group.push_back(std::move(one));
  }
  close();
  return list{std::move(groups)};
}

/// Arguments without the first ones.
arguments behind(const arguments& given, std::size_t first_ones) {
  arguments rest = given;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(first_ones));
  return rest;
}

std::string name_in(std::string_view what, const arguments& given, std::size_t i) {
  const auto* t = i < given.positional.size() ? given.positional[i].as_text() : nullptr;
  if (!t) fail("{}: expected a name, found none", what);
  return t->bytes();
}

value map(evaluator& e, const value& v, const bound& all) {
  const auto& given = all.all();
  values out;
  if (given.positional.empty()) {
    const bound args{"map", given, {"attribute", "default"}};
    for (const auto& one : items_of(v, e.work())) {
      auto found = e.item_by_path(one, args.needed(0));
      out.push_back(found.is_undefined() && args[1] ? *args[1] : std::move(found));
    }
    return lazy(std::move(out));
  }
  const auto name = name_in("map", given, 0);
  const auto rest = behind(given, 1);
  for (const auto& one : items_of(v, e.work())) out.push_back(apply_filter(e, name, one, rest));
  return lazy(std::move(out));
}

/// Four filters in one: keep or reject, by the item or by an attribute. Without a test the truth of
/// the value decides.
template <bool keeps, bool by_attribute>
value select(evaluator& e, const value& v, const bound& args) {
  const auto& given = args.all();
  constexpr std::string_view what = by_attribute ? "selectattr" : "select";
  constexpr std::size_t before_test = by_attribute ? 1 : 0;
  if (by_attribute && given.positional.empty()) fail("selectattr: the attribute is missing");
  const bool tested = given.positional.size() > before_test;
  const auto test = tested ? name_in(what, given, before_test) : std::string{};
  const auto rest = tested ? behind(given, before_test + 1) : arguments{};
  values out;
  for (const auto& one : items_of(v, e.work())) {
    const auto looked_at = by_attribute ? e.item_by_path(one, given.positional[0]) : one;
    const bool holds = tested ? apply_test(e, test, looked_at, rest) : truth_of(looked_at);
    if (holds == keeps) out.push_back(one);
  }
  return lazy(std::move(out));
}

constexpr named_function of_lists[] = {
    {"length", length},
    {"count", length},
    {"default", default_filter, {"default_value", "boolean"}},
    {"d", default_filter, {"default_value", "boolean"}},
    {"first", first},
    {"last", last},
    {"list", as_list},
    {"reverse", reverse},
    {"sort", sort, {"reverse", "case_sensitive", "attribute"}},
    {"dictsort", dictsort, {"case_sensitive", "by", "reverse"}},
    {"unique", unique, {"case_sensitive", "attribute"}},
    {"min", extreme<false>, {"case_sensitive", "attribute"}},
    {"max", extreme<true>, {"case_sensitive", "attribute"}},
    {"sum", sum, {"attribute", "start"}},
    {"items", items},
    {"attr", attr, {"name"}},
    {"batch", batch, {"linecount", "fill_with"}},
    {"groupby", group_by, {"attribute", "default", "case_sensitive"}},
    {"map", map, {"*"}},
    {"select", select<true, false>, {"*"}},
    {"reject", select<false, false>, {"*"}},
    {"selectattr", select<true, true>, {"*"}},
    {"rejectattr", select<false, true>, {"*"}},
};

}  // namespace

bool is_filter(std::string_view name) {
  return find_named(text_filters(), name) || find_named(of_lists, name);
}

value apply_filter(evaluator& e, std::string_view name, const value& input,
                   const arguments& given) {
  const auto* f = find_named(text_filters(), name);
  if (!f) f = find_named(of_lists, name);
  if (!f) fail("the filter '{}' is not supported", name);
  e.work().steps(1);
  charge_texts(e.work(), input, given);
  return (*f)(e, input, given);
}

}  // namespace troupe::gpu::jinja
