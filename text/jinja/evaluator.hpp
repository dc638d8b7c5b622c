#pragma once

#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "text/jinja/tree.hpp"

namespace troupe::gpu::jinja {

/// Names and their values; a block's own hide those around it.
struct scope {
  scope() = default;
  explicit scope(std::shared_ptr<scope> in) : around{std::move(in)} {}

  std::map<std::string, value, std::less<>> names;
  std::shared_ptr<scope> around;
  bool kept = false;  // a macro has it
};

/// The filter raise_exception: the template refuses the conversation.
class refusal : public error {
 public:
  using error::error;
};

/// Evaluates a template once.
class evaluator {
 public:
  evaluator(std::map<std::string, value, std::less<>> names, std::tm now);
  ~evaluator();
  evaluator(const evaluator&) = delete;
  evaluator& operator=(const evaluator&) = delete;

  /// Throws error.
  text run(const body& whole);
  /// The line that is evaluated.
  unsigned line() const { return line_; }

  // For filters, functions and objects.
  jinja::work& work() { return work_; }
  const std::tm& now() const { return now_; }
  value attribute_of(const value& v, const std::string& name);
  value item_of(const value& v, const value& key);
  /// As map(attribute='a.b.0') looks it up.
  value item_by_path(value v, const value& path);
  value call(const value& callee, const arguments& given);
  value call_macro(const statement& macro, const std::shared_ptr<scope>& where,
                   const arguments& given);
  /// Objects that values may reach in circles; they are emptied at the end.
  void remember(std::function<void()> empty) { ends_.push_back(std::move(empty)); }

 private:
  enum class flow { on, leave, again };
  class deeper;

  flow run_all(const body& all);
  flow run_one(const statement& s);
  flow run_loop(const statement& s);
  flow run_choice(const statement& s);
  flow run_inside(const statement& s);
  void enter(const std::shared_ptr<scope>& around) { scope_ = std::make_shared<scope>(around); }
  void keep_scopes();
  void run_macro(const statement& s);
  void run_call(const statement& s);
  void run_with(const statement& s);
  text captured(const body& inner);
  void print(const text& t);
  void give(const target& to, const value& v);
  void give_attribute(const target& to, const value& v);
  std::vector<value> loop_items(const statement& s);

  value evaluate(const expression& e);
  value evaluate_inner(const expression& e);
  value look_up(const std::string& name);
  value evaluate_list(const expression& e);
  value evaluate_dictionary(const expression& e);
  value evaluate_slice(const expression& e);
  value evaluate_call(const expression& e);
  value evaluate_comparison(const expression& e);
  value evaluate_concatenation(const expression& e);
  value evaluate_conditional(const expression& e);
  value evaluate_filters(const expression& e, const value& innermost);
  arguments arguments_of(const expression& e);

  jinja::work work_;
  const std::tm now_;
  std::shared_ptr<scope> scope_;
  text* out_ = nullptr;
  unsigned line_ = 0, depth_ = 0;
  std::vector<std::function<void()>> ends_;
};

/// Filters, tests and functions by their names.
value apply_filter(evaluator& e, std::string_view name, const value& input, const arguments& given);
bool apply_test(evaluator& e, std::string_view name, const value& v, const arguments& given);
/// Undefined: there is none of that name.
value global_function(std::string_view name);
/// The bytes of texts that a method, filter or test reads.
void charge_texts(work& w, const value& v, const arguments& given);

/// Has a text, a list or a dictionary this method?
bool has_method(const value& v, std::string_view name);
value call_method(evaluator& e, const value& v, std::string_view name, const arguments& given);
value method_of(const value& v, const std::string& name);

/// a + b and the like.
value calculated(evaluator& e, std::string_view sign, const value& a, const value& b);
value negated(const value& v);
bool compared(evaluator& e, std::string_view sign, const value& a, const value& b);
bool contains(evaluator& e, const value& in, const value& what);
/// Python's "..." % (...).
text formatted(const text& format, const std::vector<value>& given, work& w);
value sliced(const value& v, const value* first, const value* last, const value* step, work& w);

/// An object that can be called and has no attributes. `depth` is that of the values it holds.
class callable_object final : public object {
 public:
  using function = std::function<value(evaluator&, const arguments&)>;
  callable_object(std::string_view kind, function f, unsigned depth)
      : kind_{kind}, function_{std::move(f)}, depth_{depth} {}
  std::string_view kind() const override { return kind_; }
  unsigned depth() const override { return depth_; }
  bool callable() const override { return true; }
  value call(evaluator& e, const arguments& given) override { return function_(e, given); }

 private:
  std::string_view kind_;
  function function_;
  unsigned depth_;
};
inline value callable_value(std::string_view kind, callable_object::function f,
                            unsigned depth = 0) {
  return std::shared_ptr<object>{std::make_shared<callable_object>(kind, std::move(f), depth)};
}

/// A namespace: attributes that `set` may change.
class space final : public object {
 public:
  std::string_view kind() const override { return "namespace"; }
  value attribute(const std::string& name) override;
  std::map<std::string, value> attributes;
};

}  // namespace troupe::gpu::jinja
