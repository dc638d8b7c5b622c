#include <algorithm>

#include "text/jinja/evaluator.hpp"

// Methods of Python's str, dict and list.
namespace troupe::gpu::jinja {

namespace {

const text& self(const value& v) {
  return *v.as_text();
}

value listed_texts(std::vector<text> parts) {
  std::vector<value> all;
  for (auto& p : parts) all.emplace_back(std::move(p));
  return list{std::move(all)};
}

template <sides where>
value strip(evaluator& e, const value& v, const bound& args) {
  const auto characters = args.optional_text(0);
  if (characters) e.work().maps(characters->size());
  return stripped(self(v), characters, where);
}

template <bool right>
value split_text(evaluator& e, const value& v, const bound& args) {
  const auto limit = args.integer(1, -1);
  return listed_texts(
      (right ? split_from_right : split)(self(v), args.optional_text(0), limit, e.work()));
}

value splitlines(evaluator& e, const value& v, const bound& args) {
  return listed_texts(split_lines(self(v), args.truth(0, false), e.work()));
}

/// str.startswith and str.endswith: with one of several, which are a tuple. Python's start and end
/// positions are not supported here, nor in find, index and count.
template <bool ends>
value begins(evaluator&, const value& v, const bound& args) {
  const auto& s = self(v).bytes();
  const auto has = [&](const value& part) {
    const auto* t = part.as_text();
    if (!t) {
      check_defined(part);
      fail("{}: found a {}, expected a str", ends ? "endswith" : "startswith", type_of(part));
    }
    return ends ? s.ends_with(t->bytes()) : s.starts_with(t->bytes());
  };
  const auto* several = args.needed(0).as_list();
  if (!several || several->what != list::kind::tuple) return has(args.needed(0));
  return std::ranges::any_of(several->items, has);
}

value replace(evaluator& e, const value& v, const bound& args) {
  return replaced(self(v), args.needed_text(0), args.needed_text(1), args.integer(2, -1), e.work());
}

template <text (*change)(const text&)>
value change_text(evaluator& e, const value& v, const bound&) {
  e.work().bytes(2 * self(v).size());
  e.work().maps(self(v).size());
  return change(self(v));
}

/// A search from the left for each match, as the C library has no linear search from the right;
/// steps are charged per match, because texts of one repeated character match everywhere.
std::size_t find_last(std::string_view in, std::string_view what, work& w) {
  auto last = in.npos;
  for (auto at = find_in(in, what); at != in.npos && at <= in.size();
       at = find_in(in, what, at + 1)) {
    w.steps(1 + what.size() / 64);
    last = at;
  }
  return last;
}

/// Characters before the part that is looked for; -1: it is not there.
std::int64_t place_of(evaluator& e, const value& v, const bound& args, bool last) {
  const auto& s = self(v).bytes();
  const auto& part = args.needed_text(0).bytes();
  const auto at = last ? find_last(s, part, e.work()) : find_in(s, part);
  return at == s.npos ? -1 : static_cast<std::int64_t>(count_characters(s.substr(0, at)));
}

template <bool last>
value find_text(evaluator& e, const value& v, const bound& args) {
  return place_of(e, v, args, last);
}

value index(evaluator& e, const value& v, const bound& args) {
  if (const auto* l = v.as_list()) {
    for (std::size_t i = 0; i < l->items.size(); ++i)
      if (equal(l->items[i], args.needed(0), e.work())) return static_cast<std::int64_t>(i);
    fail("index: the value is not in the list");
  }
  const auto at = place_of(e, v, args, false);
  if (at < 0) fail("index: the text is not there");
  return at;
}

value count(evaluator& e, const value& v, const bound& args) {
  std::int64_t n = 0;
  if (const auto* l = v.as_list()) {
    for (const auto& one : l->items) n += equal(one, args.needed(0), e.work());
    return n;
  }
  const auto& s = self(v).bytes();
  const auto& part = args.needed_text(0).bytes();
  if (part.empty()) return static_cast<std::int64_t>(count_characters(s) + 1);
  for (auto at = find_in(s, part); at != s.npos; at = find_in(s, part, at + part.size())) ++n;
  return n;
}

value join(evaluator& e, const value& v, const bound& args) {
  std::vector<text> parts;
  check_defined(args.needed(0));
  for (const auto& one : items_of(args.needed(0), e.work())) {
    const auto* t = one.as_text();
    if (!t) fail("join: found a {}, expected str", type_of(one));
    parts.push_back(*t);
  }
  return joined(parts, self(v), e.work());
}

template <bool (*all)(std::string_view)>
value only(evaluator& e, const value& v, const bound&) {
  const std::string_view s = self(v).bytes();
  e.work().maps(s.size());
  for (std::size_t at = 0; at < s.size();) {
    const auto size = character_size(s, at);
    if (!all(s.substr(at, size))) return false;
    at += size;
  }
  return !s.empty();
}

template <bool (*is)(const text&)>
value whole(evaluator& e, const value& v, const bound&) {
  e.work().maps(2 * self(v).size());
  return is(self(v));
}

/// Without what it begins or ends with.
template <bool end>
value removed(evaluator&, const value& v, const bound& args) {
  const auto& t = self(v);
  const auto& part = args.needed_text(0).bytes();
  if (end) return t.bytes().ends_with(part) ? t.part(0, t.size() - part.size()) : t;
  return t.bytes().starts_with(part) ? t.part(part.size(), t.size()) : t;
}

template <bool last>
value partition(evaluator& e, const value& v, const bound& args) {
  const auto& t = self(v);
  const auto& part = args.needed_text(0).bytes();
  if (part.empty()) fail("partition: found an empty separator");
  const auto at = last ? find_last(t.bytes(), part, e.work()) : find_in(t.bytes(), part);
  std::vector<value> all;
  if (at == std::string::npos)
    all = last ? std::vector<value>{"", "", t} : std::vector<value>{t, "", ""};
  else
    all = {t.part(0, at), t.part(at, at + part.size()), t.part(at + part.size(), t.size())};
  return list{std::move(all), list::kind::tuple};
}

/// str.format with {} , {0} and {name}. Conversions, format specifications and access to attributes
/// are refused: the last is the known way out of Jinja's sandbox, and the width of a specification
/// could make a long text.
value format(evaluator& e, const value& v, const bound& args) {
  const auto& given = args.all();
  const auto& t = self(v);
  const auto& s = t.bytes();
  text out;
  std::size_t from = 0, next = 0;
  for (std::size_t at = 0; at < s.size(); ++at) {
    if (s[at] != '{' && s[at] != '}') continue;
    out.add(t.part(from, at));
    from = at;
    if (at + 1 < s.size() && s[at + 1] == s[at]) {
      from = ++at;
      continue;
    }
    const auto end = s.find('}', at);
    if (s[at] == '}' || end == s.npos) fail("format: found a brace without its other one");
    const auto name = s.substr(at + 1, end - at - 1);
    const bool number = std::ranges::all_of(name, is_digit);
    if (name.find_first_of(":!.[") != name.npos || name.size() > 64)
      fail("format: '{{{}}}' is not supported, expected a number or a name", name);
    const auto i = name.empty() ? next++ : number ? std::min(std::stoul(name), 1000ul) : 0;
    const value* found = number && i < given.positional.size() ? &given.positional[i] : nullptr;
    for (const auto& [key, v_of_key] : given.named)
      if (!number && key == name) found = &v_of_key;
    if (!found) fail("format: there is no value for '{{{}}}'", name);
    const auto one = shown(*found, e.work());
    e.work().bytes(one.size());
    out.add(one);
    at = end;
    from = end + 1;
  }
  out.add(t.part(from, s.size()));
  return out;
}

const dictionary& entries_of(const value& v) {
  return *v.as_dictionary();
}

/// Views of Python follow their dictionary; here a copy is the same, since it cannot change.
template <bool with_keys, bool with_values>
value view(evaluator& e, const value& v, const bound&) {
  std::vector<value> all;
  const auto& d = entries_of(v);
  e.work().bytes(d.entries.size() * 4 * sizeof(value));
  for (const auto& [key, one] : d.entries) {
    if constexpr (with_keys && with_values)
      all.emplace_back(list{{key, one}, list::kind::tuple});
    else
      all.push_back(with_keys ? key : one);
  }
  return list{std::move(all), list::kind::view};
}

value get(evaluator& e, const value& v, const bound& args) {
  if (const auto* found = entries_of(v).find(args.needed(0), e.work())) return *found;
  return args[1] ? *args[1] : value{none{}};
}

/// Values are constant, so the copy is the value itself.
value copy(evaluator&, const value& v, const bound&) {
  return v;
}

/// Methods that change a list or a dict, which the sandbox of templates does not allow.
/// transformers evaluates templates in Jinja's ImmutableSandboxedEnvironment, which refuses these
/// too. They have entries of their own so that the refusal names the reason and not a missing
/// method.
value change(evaluator&, const value& v, const bound&) {
  fail("changes a {}, which a template may not", type_of(v));
}

constexpr named_function of_text[] = {
    {"strip", strip<sides::both>, {"chars"}},
    {"lstrip", strip<sides::left>, {"chars"}},
    {"rstrip", strip<sides::right>, {"chars"}},
    {"split", split_text<false>, {"sep", "maxsplit"}},
    {"rsplit", split_text<true>, {"sep", "maxsplit"}},
    {"splitlines", splitlines, {"keepends"}},
    {"startswith", begins<false>, {"prefix"}},
    {"endswith", begins<true>, {"prefix"}},
    {"replace", replace, {"old", "new", "count"}},
    {"upper", change_text<upper>},
    {"lower", change_text<lower>},
    {"title", change_text<titled>},
    {"capitalize", change_text<capitalized>},
    {"find", find_text<false>, {"sub"}},
    {"rfind", find_text<true>, {"sub"}},
    {"index", index, {"sub"}},
    {"count", count, {"sub"}},
    {"join", join, {"iterable"}},
    {"isdigit", only<is_any_digit>},
    {"isspace", only<is_space>},
    {"isupper", whole<is_upper>},
    {"islower", whole<is_lower>},
    {"removeprefix", removed<false>, {"prefix"}},
    {"removesuffix", removed<true>, {"prefix"}},
    {"partition", partition<false>, {"sep"}},
    {"rpartition", partition<true>, {"sep"}},
    {"format", format, {"*"}},
};
constexpr named_function of_dictionary[] = {
    {"items", view<true, true>},
    {"keys", view<true, false>},
    {"values", view<false, true>},
    {"get", get, {"key", "default"}},
    {"copy", copy},
    {"pop", change, {"*"}},
    {"update", change, {"*"}},
    {"setdefault", change, {"*"}},
    {"clear", change, {"*"}},
    {"popitem", change, {"*"}},
};
constexpr named_function of_list[] = {
    {"index", index, {"sub"}},  {"count", count, {"sub"}}, {"copy", copy},
    {"append", change, {"*"}},  {"extend", change, {"*"}}, {"insert", change, {"*"}},
    {"pop", change, {"*"}},     {"remove", change, {"*"}}, {"sort", change, {"*"}},
    {"reverse", change, {"*"}}, {"clear", change, {"*"}},
};

const named_function* method_for(const value& v, std::string_view name) {
  if (v.as_text()) return find_named(of_text, name);
  if (v.as_dictionary()) return find_named(of_dictionary, name);
  const auto* l = v.as_list();
  return l && l->has_items() ? find_named(of_list, name) : nullptr;
}

}  // namespace

bool has_method(const value& v, std::string_view name) {
  return method_for(v, name) != nullptr;
}

/// Every method of a text may read or copy all of it, and is charged for that up front.
value call_method(evaluator& e, const value& v, std::string_view name, const arguments& given) {
  if (const auto* t = v.as_text()) e.work().bytes(t->size());
  charge_texts(e.work(), v, given);
  return (*method_for(v, name))(e, v, given);
}

/// For the parser, which refuses unknown methods when the template is read. The type of the value
/// is not known there, so a name passes if any type has it.
bool is_method(std::string_view name) {
  // Methods of a loop and of a cycler.
  constexpr std::string_view others[] = {"cycle", "changed", "next", "reset"};
  return find_named(of_text, name) || find_named(of_dictionary, name) ||
         find_named(of_list, name) ||
         std::find(std::begin(others), std::end(others), name) != std::end(others);
}

}  // namespace troupe::gpu::jinja
