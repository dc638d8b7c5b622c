#include "text/jinja/evaluator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace troupe::gpu::jinja {

namespace {

using tag = statement::kind;

/// Far beyond any context length; a template that prints more does not print a prompt.
constexpr std::size_t max_prompt_bytes = 16u << 20;

/// The variable `loop` of a for. Items are a list before the loop begins, since `revindex`, `last`
/// and `nextitem` look ahead, which Jinja does by reading ahead in the iterator. The depth is
/// always 1, as recursive loops are refused.
class loop_object final : public object, public std::enable_shared_from_this<loop_object> {
 public:
  explicit loop_object(list all) : items_{std::move(all.items)}, depth_{all.depth} {}

  std::string_view kind() const override { return "loop"; }
  unsigned depth() const override { return depth_; }
  const std::vector<value>& items() const { return items_; }
  void move_to(std::size_t i) { at_ = i; }

  value attribute(const std::string& name) override {
    const auto number = [](std::size_t n) { return value{static_cast<std::int64_t>(n)}; };
    if (name == "index") return number(at_ + 1);
    if (name == "index0") return number(at_);
    if (name == "revindex") return number(items_.size() - at_);
    if (name == "revindex0") return number(items_.size() - at_ - 1);
    if (name == "length") return number(items_.size());
    if (name == "first") return at_ == 0;
    if (name == "last") return at_ + 1 == items_.size();
    if (name == "depth") return number(1);
    if (name == "depth0") return number(0);
    if (name == "previtem")
      return at_ > 0 ? items_[at_ - 1] : value::missing("there is no previous item");
    if (name == "nextitem")
      return at_ + 1 < items_.size() ? items_[at_ + 1] : value::missing("there is no next item");
    if (name == "cycle" || name == "changed")
      return callable_value(
          "method of a loop",
          [self = shared_from_this(), cycles = name == "cycle"](evaluator& e,
                                                                const arguments& given) {
            return cycles ? self->cycle(given) : self->changed(given, e);
          },
          depth_);
    return object::attribute(name);
  }

  value cycle(const arguments& given) const {
    if (given.positional.empty()) fail("loop.cycle: found no values");
    return given.positional[at_ % given.positional.size()];
  }
  // True if the arguments differ from those of the call before. The arguments are kept until the
  // end of the evaluation, and `remember` then breaks a cycle of references through the loop.
  value changed(const arguments& given, evaluator& e) {
    if (!before_) e.remember([this, self = shared_from_this()] { clear(); });
    value now{list{given.positional, list::kind::tuple}};
    const bool same = before_ && equal(*before_, now, e.work());
    before_ = std::move(now);
    return !same;
  }
  /// Its values may have it among them.
  void clear() {
    items_.clear();
    before_.reset();
  }

 private:
  std::vector<value> items_;
  unsigned depth_;
  std::size_t at_ = 0;
  std::optional<value> before_;
};

/// A macro sees the names of the place where it is defined, not of the place that calls it: it
/// holds that scope, and the statement stays alive with the template.
value macro_value(const statement& macro, std::shared_ptr<scope> where) {
  return callable_value("macro",
                        [&macro, where = std::move(where)](evaluator& e, const arguments& given) {
                          return e.call_macro(macro, where, given);
                        });
}

}  // namespace

/// Counts levels of the evaluation while it is there. Nesting of expressions, blocks and macro
/// calls together, as all of them use the stack of the thread that evaluates. A macro that calls
/// itself without end is stopped here rather than by a crash.
class evaluator::deeper {
 public:
  explicit deeper(evaluator& e) : evaluator_{e} {
    constexpr unsigned max_levels = 500;
    if (e.depth_ >= max_levels) fail("nests calls deeper than {} levels", max_levels);
    ++e.depth_;
    e.work_.steps(1);
  }
  ~deeper() { --evaluator_.depth_; }
  deeper(const deeper&) = delete;
  deeper& operator=(const deeper&) = delete;

 private:
  evaluator& evaluator_;
};

evaluator::evaluator(std::map<std::string, value, std::less<>> names, std::tm now)
    : now_{now}, scope_{std::make_shared<scope>()} {
  scope_->names = std::move(names);
}

/// Objects with state (namespaces, loops, scopes of macros) may refer to themselves through a
/// value; reference counts alone would leak them with every request, so their contents are cleared
/// here.
evaluator::~evaluator() {
  for (const auto& end : ends_) end();
}

text evaluator::run(const body& whole) {
  text out;
  out_ = &out;
  // Names that the template sets get a scope of their own.
  enter(scope_);
  run_all(whole);
  return out;
}

evaluator::flow evaluator::run_all(const body& all) {
  const deeper one{*this};
  for (const auto& s : all)
    if (const auto f = run_one(s); f != flow::on) return f;
  return flow::on;
}

/// An `if` runs in the scope around it: names that it sets stay, unlike those set in a loop.
evaluator::flow evaluator::run_one(const statement& s) {
  work_.steps(1);
  line_ = s.line;
  switch (s.what) {
    case tag::text:
      print(s.name);
      return flow::on;
    case tag::print:
      print(shown(evaluate(*s.values[0]), work_));
      return flow::on;
    case tag::loop:
      return run_loop(s);
    case tag::choice:
      return run_choice(s);
    case tag::set:
      give(s.to, evaluate(*s.values[0]));
      return flow::on;
    case tag::leave:
      return flow::leave;
    case tag::again:
      return flow::again;
    default:
      return run_inside(s);
  }
}

/// Blocks whose inside is no part of the loop around them, but of a scope of its own. The text of a
/// capture is complete before its name is given in the scope around it.
evaluator::flow evaluator::run_inside(const statement& s) {
  if (s.what == tag::macro) {
    run_macro(s);
    return flow::on;
  }
  const auto around = scope_;
  enter(around);
  auto f = flow::on;
  if (s.what == tag::capture) {
    const auto all = captured(s.inner);
    const value v = s.values[0] ? evaluate_filters(*s.values[0], all) : value{all};
    scope_ = around;
    give(s.to, v);
  } else if (s.what == tag::filter) {
    print(shown(evaluate_filters(*s.values[0], captured(s.inner)), work_));
  } else if (s.what == tag::call) {
    run_call(s);
  } else {
    if (s.what == tag::with) run_with(s);
    f = run_all(s.inner);
  }
  scope_ = around;
  return f;
}

/// Ranges of message text travel with the output, so a prompt of many short ranges is charged for
/// them as well as for its bytes.
void evaluator::print(const text& t) {
  work_.bytes(t.size() + t.from_message().size() * sizeof(text_range));
  if (out_->size() + t.size() > max_prompt_bytes)
    fail("writes more than {} bytes, expected fewer", max_prompt_bytes);
  out_->add(t);
}

text evaluator::captured(const body& inner) {
  text all;
  auto* const before = std::exchange(out_, &all);
  run_all(inner);
  out_ = before;
  return all;
}

/// The condition of a for filters before the loop begins, so loop.length counts kept items only.
std::vector<value> evaluator::loop_items(const statement& s) {
  auto items = items_of(evaluate(*s.values[0]), work_);
  if (!s.values[1]) return items;
  std::vector<value> kept;
  const auto around = scope_;
  for (auto& v : items) {
    enter(around);
    give(s.to, v);
    if (truth_of(evaluate(*s.values[1]))) kept.push_back(std::move(v));
  }
  scope_ = around;
  return kept;
}

/// Each iteration has a new scope around the same one: a `set` in a loop is lost with the
/// iteration, which is why templates use namespace(). The `else` block runs in such a scope too.
evaluator::flow evaluator::run_loop(const statement& s) {
  const auto loop = std::make_shared<loop_object>(list{loop_items(s)});
  const auto around = scope_;
  // Jinja runs `else` also if every iteration was left by break or continue.
  bool completed = false;
  for (std::size_t i = 0; i < loop->items().size(); ++i) {
    loop->move_to(i);
    enter(around);
    scope_->names["loop"] = value{std::shared_ptr<object>{loop}};
    give(s.to, loop->items()[i]);
    const auto f = run_all(s.inner);
    completed = completed || f == flow::on;
    if (f == flow::leave) break;
  }
  auto f = flow::on;
  if (!completed) {
    enter(around);
    f = run_all(s.otherwise);
  }
  scope_ = around;
  return f;
}

evaluator::flow evaluator::run_choice(const statement& s) {
  for (const auto& b : s.branches)
    if (!b.condition || truth_of(evaluate(*b.condition))) return run_all(b.then);
  return flow::on;
}

/// Values of a `with` are evaluated in the scope around it: they do not see its names.
void evaluator::run_with(const statement& s) {
  const auto inside = std::exchange(scope_, scope_->around);
  std::vector<value> given;
  for (const auto& v : s.values) given.push_back(evaluate(*v));
  scope_ = inside;
  for (std::size_t i = 0; i < given.size(); ++i) give(s.targets[i], given[i]);
}

/// A macro has the scopes that have the macro. Scope and macro refer to each other, so each scope
/// on the way out is cleared once at the end of the evaluation. The flag keeps a loop that defines
/// macros from registering outer scopes repeatedly.
void evaluator::keep_scopes() {
  for (auto s = scope_; s && !s->kept; s = s->around) {
    s->kept = true;
    work_.bytes(sizeof(scope));
    remember([s] { s->names.clear(); });
  }
}

void evaluator::run_macro(const statement& s) {
  keep_scopes();
  work_.bytes(sizeof(callable_object) + sizeof(scope));
  scope_->names[s.name] = macro_value(s, scope_);
}

/// The block becomes a macro `caller`, which the called macro may call any number of times.
/// Arguments are evaluated before the block, of which they see no name.
void evaluator::run_call(const statement& s) {
  const auto& call_expression = *s.values[0];
  const auto callee = evaluate(*call_expression.parts[0]);
  auto given = arguments_of(call_expression);
  keep_scopes();
  given.named.emplace_back("caller", macro_value(s, scope_));
  print(shown(call(callee, given), work_));
}

/// Arguments bind as in Python, but there is no `varargs` or `kwargs`: surplus ones are refused. A
/// default is evaluated at the call and may use the parameters before it. The result is text whose
/// ranges from messages survive.
value evaluator::call_macro(const statement& macro, const std::shared_ptr<scope>& where,
                            const arguments& given) {
  const deeper one{*this};
  const auto name = macro.name.empty() ? std::string{"caller"} : macro.name;
  if (given.positional.size() > macro.parameters.size())
    fail("{}: found {} arguments, expected at most {}", name, given.positional.size(),
         macro.parameters.size());
  const auto inside = std::make_shared<scope>(where);
  for (std::size_t i = 0; i < given.positional.size(); ++i)
    inside->names[macro.parameters[i].name] = given.positional[i];
  for (const auto& [key, v] : given.named) {
    const bool known =
        std::ranges::any_of(macro.parameters, [&](const parameter& p) { return p.name == key; });
    if (!known && key != "caller") fail("{}: has no argument '{}'", name, key);
    if (!inside->names.emplace(key, v).second)
      fail("{}: the argument '{}' is there twice", name, key);
  }
  const auto before = std::exchange(scope_, inside);
  const auto line = line_;
  for (const auto& p : macro.parameters)
    if (!inside->names.contains(p.name))
      inside->names[p.name] = p.otherwise
                                  ? evaluate(*p.otherwise)
                                  : value::missing(fmt::format("'{}' was not given", p.name));
  auto written = captured(macro.inner);
  scope_ = before;
  line_ = line;
  return value{std::move(written)};
}

/// Several names take an iterable apart, as Python does, and their number must match. Setting
/// always writes the innermost scope; an outer variable of the same name is hidden, not changed.
void evaluator::give(const target& to, const value& v) {
  if (!to.several.empty()) {
    const auto all = items_of(v, work_);
    if (v.is_undefined()) check_defined(v);
    if (all.size() != to.several.size())
      fail("found {} values for {} names", all.size(), to.several.size());
    for (std::size_t i = 0; i < all.size(); ++i) give(to.several[i], all[i]);
    return;
  }
  if (!to.attribute.empty()) return give_attribute(to, v);
  work_.bytes(sizeof(value));
  scope_->names[to.name] = v;
}

/// Namespaces are the only values that a template may change: everything else is shared and
/// constant.
void evaluator::give_attribute(const target& to, const value& v) {
  const auto there = look_up(to.name);
  auto* s = dynamic_cast<space*>(there.as_object());
  if (!s) fail("sets an attribute of '{}', a {}, expected a namespace", to.name, type_of(there));
  work_.bytes(sizeof(value));
  s->attributes[to.attribute] = v;
}

/// Variables hide global functions. A name without either is undefined rather than an error, for
/// templates ask `if tools is defined` and print undefined values as nothing.
value evaluator::look_up(const std::string& name) {
  for (const auto* s = scope_.get(); s; s = s->around.get())
    if (const auto found = s->names.find(name); found != s->names.end()) return found->second;
  auto v = global_function(name);
  return v.is_undefined() ? value::missing(fmt::format("'{}' is undefined", name)) : v;
}

void charge_texts(work& w, const value& v, const arguments& given) {
  const auto charge = [&](const value& one) {
    if (const auto* t = one.as_text()) w.reads(t->size());
  };
  charge(v);
  for (const auto& one : given.positional) charge(one);
  for (const auto& [name, one] : given.named) charge(one);
}

value evaluator::call(const value& callee, const arguments& given) {
  check_defined(callee);
  auto* o = callee.as_object();
  if (!o || !o->callable()) fail("a {} cannot be called", type_of(callee));
  return o->call(*this, given);
}

/// `x.name` prefers a method to an entry, as Python's getattr before getitem does: `d.items` is the
/// method even of a dictionary with the key "items". An attribute of something undefined fails.
value evaluator::attribute_of(const value& v, const std::string& name) {
  check_defined(v);
  if (has_method(v, name)) return method_of(v, name);
  if (auto* o = v.as_object()) return o->attribute(name);
  if (const auto* d = v.as_dictionary())
    if (const auto* found = d->find(name)) return *found;
  return value::missing(fmt::format("a {} has no attribute '{}'", type_of(v), name));
}

value evaluator::evaluate(const expression& e) {
  const deeper one{*this};
  line_ = e.line;
  return evaluate_inner(e);
}

}  // namespace troupe::gpu::jinja
