#include "text/jinja/value.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace troupe::gpu::jinja {

namespace {

/// Deeper values could not be freed, compared or written without much of the stack.
constexpr unsigned max_depth = 64;

/// A container knows its depth when it is made, so the check costs nothing per use. Lists and
/// dictionaries are constant once shared and cannot contain themselves.
unsigned checked_depth(unsigned inner) {
  if (inner >= max_depth) fail("nests values deeper than {} levels", max_depth);
  return inner + 1;
}

int order(double a, double b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

/// The order of entries does not count. Quadratic through find(), which charges for its steps.
bool equal_dictionaries(const dictionary& a, const dictionary& b, work& w) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, mine] : a.entries) {
    const auto* other = b.find(key, w);
    if (!other || !equal(mine, *other, w)) return false;
  }
  return true;
}

/// A list never equals a tuple, as in Python, and a generator equals only itself.
bool equal_lists(const list& a, const list& b, work& w) {
  if (a.what != b.what || a.what == list::kind::iterator) return &a == &b;
  if (a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i)
    if (!equal(a.items[i], b.items[i], w)) return false;
  return true;
}

}  // namespace

value object::attribute(const std::string& name) {
  return value::missing(fmt::format("'{}' has no attribute '{}'", kind(), name));
}

value object::call(evaluator&, const arguments&) {
  fail("a '{}' cannot be called", kind());
}

list::list(std::vector<value> all, kind k) : items{std::move(all)}, what{k} {
  unsigned inner = 0;
  for (const auto& v : items) inner = std::max(inner, v.depth());
  depth = checked_depth(inner);
}

value::value(list l) : any_{std::make_shared<const list>(std::move(l))} {}
value::value(dictionary d) : any_{std::make_shared<const dictionary>(std::move(d))} {}

/// Undefined values carry their reason, because the failure comes later, where the value is used.
value value::missing(std::string why) {
  return undefined{std::make_shared<const std::string>(std::move(why))};
}

/// bool is a subclass of int in Python: True + 1 is 2.
std::optional<std::int64_t> value::integer_like() const {
  if (const auto* b = as_bool()) return *b;
  const auto* i = as_integer();
  return i ? std::optional{*i} : std::nullopt;
}

std::optional<double> value::number_like() const {
  if (const auto i = integer_like()) return static_cast<double>(*i);
  const auto* d = as_float();
  return d ? std::optional{*d} : std::nullopt;
}

/// Python's `is`: identity for what is shared, equality for small values, which have no identity
/// here.
bool value::same_as(const value& other) const {
  return any_ == other.any_;
}

unsigned value::depth() const {
  if (const auto* l = as_list()) return l->depth;
  if (const auto* d = as_dictionary()) return d->depth;
  if (const auto* o = as_object()) return o->depth();
  return 0;
}

/// The search is linear, as dictionaries of a template are small; its steps are charged by the
/// number of entries, so that a large one cannot use up time unseen.
const value* dictionary::find(const value& key, work& w) const {
  w.steps(entries.size() / 4);
  for (const auto& [k, v] : entries)
    if (equal(k, key, w)) return &v;
  return nullptr;
}

const value* dictionary::find(std::string_view key) const {
  for (const auto& [k, v] : entries)
    if (const auto* t = k.as_text(); t && t->bytes() == key) return &v;
  return nullptr;
}

/// The depth is checked before the entry is stored: a refused value leaves no deep one behind.
void dictionary::set(value key, value v, work& w) {
  const auto* l = key.as_list();
  if ((l && l->what != list::kind::tuple) || key.as_dictionary())
    fail("a key of a dict may not be a {}", type_of(key));
  depth = std::max(depth, checked_depth(std::max(key.depth(), v.depth())));
  if (const auto* there = find(key, w)) {
    const_cast<value&>(*there) = std::move(v);  // an entry of this, which is not const
    return;
  }
  w.bytes(sizeof(entry));
  entries.emplace_back(std::move(key), std::move(v));
}

/// Binds arguments to parameters as a call in Python: by place, then by name, each at most once.
/// Parameters that a filter or method has in Python but not here are refused as unknown names.
bound::bound(std::string_view what, const arguments& given, const parameter_names& parameters)
    : what_{what}, all_{given}, parameters_{parameters} {
  if (parameters_[0] == "*") return;
  const auto end = std::ranges::find(parameters_, "");
  const auto count = static_cast<std::size_t>(end - parameters_.begin());
  if (given.positional.size() > count)
    fail("{}: found {} arguments, expected at most {}", what_, given.positional.size(), count);
  for (std::size_t i = 0; i < given.positional.size(); ++i) given_[i] = &given.positional[i];
  for (const auto& [name, v] : given.named) {
    const auto at = std::find(parameters_.begin(), end, name);
    if (at == end) fail("{}: has no argument '{}'", what_, name);
    auto& slot = given_[static_cast<std::size_t>(at - parameters_.begin())];
    if (slot) fail("{}: the argument '{}' is there twice", what_, name);
    slot = &v;
  }
}

bool bound::truth(std::size_t i, bool otherwise) const {
  return given_[i] ? truth_of(*given_[i]) : otherwise;
}

std::int64_t bound::integer(std::size_t i, std::int64_t otherwise) const {
  if (!given_[i] || given_[i]->is_none()) return otherwise;
  const auto found = given_[i]->integer_like();
  if (!found) fail("{}: {} is a {}, expected an int", what_, parameters_[i], type_of(*given_[i]));
  return *found;
}

const value& bound::needed(std::size_t i) const {
  if (!given_[i]) fail("{}: the argument '{}' is missing", what_, parameters_[i]);
  return *given_[i];
}

const text& bound::needed_text(std::size_t i) const {
  const auto* t = needed(i).as_text();
  if (!t) fail("{}: {} is a {}, expected a str", what_, parameters_[i], type_of(*given_[i]));
  return *t;
}

std::optional<std::string> bound::optional_text(std::size_t i) const {
  if (!given_[i] || given_[i]->is_none()) return std::nullopt;
  return needed_text(i).bytes();
}

std::string type_of(const value& v) {
  if (v.is_undefined()) return "Undefined";
  if (v.is_none()) return "NoneType";
  if (v.as_bool()) return "bool";
  if (v.as_integer()) return "int";
  if (v.as_float()) return "float";
  if (v.as_text()) return "str";
  if (v.as_dictionary()) return "dict";
  if (const auto* o = v.as_object()) return std::string{o->kind()};
  constexpr const char* names[] = {"list", "tuple", "range", "dict view", "generator"};
  return names[static_cast<std::size_t>(v.as_list()->what)];
}

/// A generator is true even without items, since Python cannot know; empty texts, lists and
/// dictionaries, zeros, none and undefined values are false.
bool truth_of(const value& v) {
  if (const auto* b = v.as_bool()) return *b;
  if (const auto* i = v.as_integer()) return *i != 0;
  if (const auto* d = v.as_float()) return *d != 0;
  if (const auto* t = v.as_text()) return !t->empty();
  if (const auto* l = v.as_list()) return !l->has_length() || !l->items.empty();
  if (const auto* d = v.as_dictionary()) return !d->entries.empty();
  return v.as_object() != nullptr;
}

/// Fails for no types: values of different types are different, except for numbers. Every
/// comparison is a step, and long texts count for their bytes, so nested values cannot hide work.
bool equal(const value& a, const value& b, work& w) {
  w.steps(1);
  const auto i = a.integer_like(), j = b.integer_like();
  if (i && j) return *i == *j;
  if (const auto x = a.number_like()) return x == b.number_like();
  if (a.is_undefined()) return b.is_undefined();
  if (a.is_none()) return b.is_none();
  if (const auto* t = a.as_text(), *u = b.as_text(); t && u) {
    w.steps(std::min(t->size(), u->size()) / 64);
    return *t == *u;
  }
  if (const auto* l = a.as_list(), *k = b.as_list(); l && k) return equal_lists(*l, *k, w);
  if (const auto* d = a.as_dictionary(), *e = b.as_dictionary(); d && e)
    return equal_dictionaries(*d, *e, w);
  return a.as_object() && a.as_object() == b.as_object();
}

/// Only numbers, texts and sequences of one type have an order. Texts compare by bytes, which for
/// UTF-8 is the order of code points that Python has. Sequences compare by their first difference.
int compare(const value& a, const value& b, std::string_view sign, work& w) {
  w.steps(1);
  const auto i = a.integer_like(), j = b.integer_like();
  if (i && j) return *i < *j ? -1 : *i > *j;
  const auto x = a.number_like(), y = b.number_like();
  if (x && y) return order(*x, *y);
  if (const auto* t = a.as_text(), *u = b.as_text(); t && u) {
    w.steps(std::min(t->size(), u->size()) / 64);
    return t->bytes().compare(u->bytes());
  }
  const auto* l = a.as_list();
  const auto* k = b.as_list();
  const bool sequences =
      l && k && l->what == k->what && (l->what == list::kind::list || l->what == list::kind::tuple);
  if (sequences) {
    for (std::size_t at = 0; at < std::min(l->items.size(), k->items.size()); ++at)
      if (!equal(l->items[at], k->items[at], w))
        return compare(l->items[at], k->items[at], sign, w);
    return order(static_cast<double>(l->items.size()), static_cast<double>(k->items.size()));
  }
  check_defined(a);
  check_defined(b);
  fail("'{}' is not supported between {} and {}", sign, type_of(a), type_of(b));
}

/// A value per character is many times the text's bytes, and is charged for before it is made.
std::vector<value> characters_of(const text& t, work& w) {
  w.bytes(t.size() * (sizeof(value) + sizeof(text)));
  std::vector<value> out;
  const std::string_view s = t.bytes();
  for (std::size_t at = 0; at < s.size();) {
    const auto end = at + character_size(s, at);
    out.emplace_back(t.part(at, end));
    at = end;
  }
  return out;
}

/// A generator can be read once: the second loop over it sees nothing, as in Python. A dictionary
/// yields its keys.
std::vector<value> items_of(const value& v, work& w) {
  if (v.is_undefined()) return {};
  if (const auto* t = v.as_text()) return characters_of(*t, w);
  if (const auto* l = v.as_list()) {
    if (l->what == list::kind::iterator && std::exchange(l->read, true)) return {};
    w.bytes(l->items.size() * sizeof(value));
    w.steps(l->items.size() / 4);
    return l->items;
  }
  if (const auto* d = v.as_dictionary()) {
    std::vector<value> keys;
    w.bytes(d->entries.size() * sizeof(value));
    w.steps(d->entries.size() / 4);
    for (const auto& e : d->entries) keys.push_back(e.first);
    return keys;
  }
  fail("a {} has no items to go through", type_of(v));
}

std::size_t length_of(const value& v) {
  if (v.is_undefined()) return 0;
  if (const auto* t = v.as_text()) return count_characters(t->bytes());
  if (const auto* l = v.as_list(); l && l->has_length()) return l->items.size();
  if (const auto* d = v.as_dictionary()) return d->entries.size();
  fail("a {} has no length", type_of(v));
}

void check_defined(const value& v) {
  if (!v.is_undefined()) return;
  const auto& why = v.as_undefined().why;
  fail("{}", why ? *why : "uses a value that is undefined");
}

}  // namespace troupe::gpu::jinja
