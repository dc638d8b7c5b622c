#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/evaluator.hpp"

namespace troupe::gpu::jinja {

namespace {

using node = expression::kind;

/// The item of a sequence by Python's numbers, where -1 is the last. Texts count in characters,
/// which takes O(bytes) to find and is charged for. A number outside of the sequence is undefined,
/// where Python would raise IndexError: Jinja catches that.
value item_by_number(const value& v, std::int64_t n, work& w) {
  const auto size = static_cast<std::int64_t>(length_of(v));
  if (const auto at = n < 0 ? n + size : n; at >= 0 && at < size) {
    const auto i = static_cast<std::size_t>(at);
    if (const auto* l = v.as_list()) return l->items[i];
    const auto& t = *v.as_text();
    const auto starts = character_starts(t.bytes(), w);
    return t.part(starts[i], starts[i + 1]);
  }
  return value::missing(fmt::format("a {} has no item {}", type_of(v), n));
}

}  // namespace

/// `x[name]` prefers an entry to an attribute, the other way round than `x.name`.
value evaluator::item_of(const value& v, const value& key) {
  check_defined(v);
  if (const auto* d = v.as_dictionary()) {
    if (const auto* found = d->find(key, work_)) return *found;
  } else if (const auto i = key.integer_like();
             i && (v.as_text() || (v.as_list() && v.as_list()->has_items()))) {
    return item_by_number(v, *i, work_);
  }
  const auto* name = key.as_text();
  if (!name) return value::missing(fmt::format("a {} has no such item", type_of(v)));
  return attribute_of(v, name->bytes());
}

/// Paths of the filters' `attribute` arguments: names and numbers with points between. Nine digits
/// fit any index that a list can have, and cannot overflow.
value evaluator::item_by_path(value v, const value& path) {
  if (path.is_none()) return v;
  const auto* t = path.as_text();
  if (!t) return item_of(v, path);
  for (const auto& part : split(*t, ".", -1, work_)) {
    const auto& p = part.bytes();
    const bool number = !p.empty() && p.size() < 10 && std::ranges::all_of(p, is_digit);
    v = item_of(v, number ? value{static_cast<std::int64_t>(std::stoll(p))} : value{part});
  }
  return v;
}

/// `and` and `or` yield one of their operands rather than a bool and evaluate the second one only
/// if it decides, as in Python. Left operands are evaluated before right ones.
value evaluator::evaluate_inner(const expression& e) {
  switch (e.what) {
    case node::constant:
      return e.constant;
    case node::name:
      return look_up(e.text);
    case node::list:
    case node::tuple:
      return evaluate_list(e);
    case node::dictionary:
      return evaluate_dictionary(e);
    case node::attribute:
      return attribute_of(evaluate(*e.parts[0]), e.text);
    case node::item: {
      const auto v = evaluate(*e.parts[0]);
      return item_of(v, evaluate(*e.parts[1]));
    }
    case node::slice:
      return evaluate_slice(e);
    case node::call:
      return evaluate_call(e);
    case node::filter:
      return evaluate_filters(e, {});
    case node::test: {
      const auto v = evaluate(*e.parts[0]);
      return apply_test(*this, e.text, v, arguments_of(e));
    }
    case node::negative:
      return negated(evaluate(*e.parts[0]));
    case node::positive:
      return negated(negated(evaluate(*e.parts[0])));
    case node::inverse:
      return !truth_of(evaluate(*e.parts[0]));
    case node::both:
    case node::either: {
      auto left = evaluate(*e.parts[0]);
      return truth_of(left) == (e.what == node::either) ? left : evaluate(*e.parts[1]);
    }
    case node::calculation: {
      const auto left = evaluate(*e.parts[0]);
      return calculated(*this, e.text, left, evaluate(*e.parts[1]));
    }
    case node::comparison:
      return evaluate_comparison(e);
    case node::concatenation:
      return evaluate_concatenation(e);
    case node::conditional:
      return evaluate_conditional(e);
  }
  return {};
}

value evaluator::evaluate_list(const expression& e) {
  std::vector<value> all;
  work_.bytes(e.parts.size() * sizeof(value));
  for (const auto& p : e.parts) all.push_back(evaluate(*p));
  return list{std::move(all), e.what == node::tuple ? list::kind::tuple : list::kind::list};
}

value evaluator::evaluate_dictionary(const expression& e) {
  dictionary d;
  for (std::size_t i = 0; i + 1 < e.parts.size(); i += 2) {
    auto key = evaluate(*e.parts[i]);
    d.set(std::move(key), evaluate(*e.parts[i + 1]), work_);
  }
  return d;
}

/// `none` for a bound is the same as no bound, as in Python.
value evaluator::evaluate_slice(const expression& e) {
  const auto v = evaluate(*e.parts[0]);
  value ends[3];
  const value* given[3] = {};
  for (std::size_t i = 0; i < 3; ++i) {
    if (!e.parts[i + 1]) continue;
    ends[i] = evaluate(*e.parts[i + 1]);
    if (!ends[i].is_none()) given[i] = &ends[i];
  }
  return sliced(v, given[0], given[1], given[2], work_);
}

arguments evaluator::arguments_of(const expression& e) {
  arguments given;
  for (std::size_t i = 1; i < e.parts.size(); ++i)
    given.positional.push_back(evaluate(*e.parts[i]));
  for (const auto& [name, p] : e.named) given.named.emplace_back(name, evaluate(*p));
  return given;
}

/// A method call goes to the method directly, without an object for the bound method, which would
/// live for this call only. The line is set again behind the arguments, which may be on other
/// lines, so that errors name the line of the call.
value evaluator::evaluate_call(const expression& e) {
  const auto& callee = *e.parts[0];
  if (callee.what != node::attribute) {
    const auto f = evaluate(callee);
    const auto given = arguments_of(e);
    line_ = e.line;
    return call(f, given);
  }
  const auto v = evaluate(*callee.parts[0]);
  if (!has_method(v, callee.text)) {
    const auto f = attribute_of(v, callee.text);
    return call(f, arguments_of(e));
  }
  const auto given = arguments_of(e);
  line_ = e.line;
  return call_method(*this, v, callee.text, given);
}

/// A chain a < b < c evaluates each operand once and stops at the first comparison that is false.
value evaluator::evaluate_comparison(const expression& e) {
  auto left = evaluate(*e.parts[0]);
  for (std::size_t i = 0; i < e.signs.size(); ++i) {
    auto right = evaluate(*e.parts[i + 1]);
    if (!compared(*this, e.signs[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

value evaluator::evaluate_concatenation(const expression& e) {
  std::vector<text> parts;
  for (const auto& p : e.parts) parts.push_back(shown(evaluate(*p), work_));
  return joined(parts, {}, work_);
}

/// Without `else` the value is undefined, which prints as nothing.
value evaluator::evaluate_conditional(const expression& e) {
  if (truth_of(evaluate(*e.parts[0]))) return evaluate(*e.parts[1]);
  if (e.parts[2]) return evaluate(*e.parts[2]);
  return value::missing("the condition of an 'if' without 'else' is false");
}

/// Filters of a block tag have no expression as input: the first one takes `innermost`, the text of
/// the block.
value evaluator::evaluate_filters(const expression& e, const value& innermost) {
  const auto input = !e.parts[0]                        ? innermost
                     : e.parts[0]->what == node::filter ? evaluate_filters(*e.parts[0], innermost)
                                                        : evaluate(*e.parts[0]);
  const auto given = arguments_of(e);
  line_ = e.line;
  return apply_filter(*this, e.text, input, given);
}

}  // namespace troupe::gpu::jinja
