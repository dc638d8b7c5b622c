#include "text/jinja/evaluator.hpp"

// Tests: `x is defined` and the like.
namespace troupe::gpu::jinja {

namespace {

struct test {
  std::string_view name;
  std::size_t arguments;
  bool (*holds)(evaluator&, const value&, const std::vector<value>&);
};

using given_values = const std::vector<value>&;

/// 2 stands for any rest of a float other than 0: only integers are odd here, while 3.0 is odd in
/// Jinja.
std::int64_t rest_of(evaluator& e, const value& v, const value& by) {
  const auto rest = calculated(e, "%", v, by);
  const auto i = rest.integer_like();
  return i ? *i : rest.as_float() && *rest.as_float() == 0 ? 0 : 2;
}

template <std::int64_t expected>
bool rest_by_two(evaluator& e, const value& v, given_values) {
  return rest_of(e, v, value{std::int64_t{2}}) == expected;
}

bool divisible(evaluator& e, const value& v, given_values given) {
  return rest_of(e, v, given[0]) == 0;
}

/// An undefined value iterates as an empty sequence, so the test holds for it in Jinja as well.
bool iterable(evaluator&, const value& v, given_values) {
  return v.is_undefined() || v.as_text() || v.as_list() || v.as_dictionary();
}

bool sequence(evaluator&, const value& v, given_values) {
  return v.as_text() || v.as_dictionary() || (v.as_list() && v.as_list()->has_items());
}

bool callable(evaluator&, const value& v, given_values) {
  return v.as_object() && v.as_object()->callable();
}

template <bool upper_case>
bool has_case(evaluator& e, const value& v, given_values) {
  const auto t = shown(v, e.work());
  e.work().bytes(2 * t.size());
  e.work().maps(2 * t.size());
  return upper_case ? is_upper(t) : is_lower(t);
}

/// As the operator of this sign.
template <char... sign>
bool compares(evaluator& e, const value& v, given_values given) {
  constexpr char letters[] = {sign...};
  return compared(e, {letters, sizeof letters}, v, given[0]);
}

bool is_in(evaluator& e, const value& v, given_values given) {
  return contains(e, given[0], v);
}

/// Templates may ask before they use a filter or a test; the answer is about those supported here.
template <bool (*known)(std::string_view)>
bool is_supported(evaluator&, const value& v, given_values) {
  return v.as_text() && known(v.as_text()->bytes());
}

/// `is true` holds for the bool only: 1 is not true by this test.
template <bool wanted>
bool is_truth(evaluator&, const value& v, given_values) {
  return v.as_bool() && *v.as_bool() == wanted;
}

constexpr test tests[] = {
    {"defined", 0, [](evaluator&, const value& v, given_values) { return !v.is_undefined(); }},
    {"undefined", 0, [](evaluator&, const value& v, given_values) { return v.is_undefined(); }},
    {"none", 0, [](evaluator&, const value& v, given_values) { return v.is_none(); }},
    {"boolean", 0, [](evaluator&, const value& v, given_values) { return !!v.as_bool(); }},
    {"integer", 0, [](evaluator&, const value& v, given_values) { return !!v.as_integer(); }},
    {"float", 0, [](evaluator&, const value& v, given_values) { return !!v.as_float(); }},
    {"number", 0, [](evaluator&, const value& v, given_values) { return !!v.number_like(); }},
    {"string", 0, [](evaluator&, const value& v, given_values) { return !!v.as_text(); }},
    {"mapping", 0, [](evaluator&, const value& v, given_values) { return !!v.as_dictionary(); }},
    {"escaped", 0,
     [](evaluator&, const value& v, given_values) { return v.as_text() && v.as_text()->markup(); }},
    {"sameas", 1,
     [](evaluator&, const value& v, given_values given) { return v.same_as(given[0]); }},
    {"true", 0, is_truth<true>},
    {"false", 0, is_truth<false>},
    {"iterable", 0, iterable},
    {"sequence", 0, sequence},
    {"callable", 0, callable},
    {"odd", 0, rest_by_two<1>},
    {"even", 0, rest_by_two<0>},
    {"divisibleby", 1, divisible},
    {"upper", 0, has_case<true>},
    {"lower", 0, has_case<false>},
    {"filter", 0, is_supported<is_filter>},
    {"test", 0, is_supported<is_test>},
    {"in", 1, is_in},
    {"eq", 1, compares<'=', '='>},
    {"equalto", 1, compares<'=', '='>},
    {"==", 1, compares<'=', '='>},
    {"ne", 1, compares<'!', '='>},
    {"!=", 1, compares<'!', '='>},
    {"lt", 1, compares<'<'>},
    {"lessthan", 1, compares<'<'>},
    {"<", 1, compares<'<'>},
    {"gt", 1, compares<'>'>},
    {"greaterthan", 1, compares<'>'>},
    {">", 1, compares<'>'>},
    {"le", 1, compares<'<', '='>},
    {"<=", 1, compares<'<', '='>},
    {"ge", 1, compares<'>', '='>},
    {">=", 1, compares<'>', '='>},
};

}  // namespace

bool is_test(std::string_view name) {
  return find_named(tests, name) != nullptr;
}

bool apply_test(evaluator& e, std::string_view name, const value& v, const arguments& given) {
  const auto* t = find_named(tests, name);
  if (!t) fail("the test '{}' is not supported", name);
  if (!given.named.empty() || given.positional.size() != t->arguments)
    fail("{}: found {} arguments, expected {}", name, given.positional.size() + given.named.size(),
         t->arguments);
  e.work().steps(1);
  charge_texts(e.work(), v, given);
  return t->holds(e, v, given.positional);
}

}  // namespace troupe::gpu::jinja
