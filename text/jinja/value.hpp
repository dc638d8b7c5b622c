#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/text.hpp"

namespace troupe::gpu::jinja {

class evaluator;
class value;
struct arguments;

/// The value of a name or an item that does not exist; `why`: the error if it is used.
struct undefined {
  std::shared_ptr<const std::string> why;
  bool operator==(const undefined&) const { return false; }
};
struct none {
  bool operator==(const none&) const = default;
};

struct list;
struct dictionary;

/// A macro, a function, a loop, a namespace: what has attributes of its own, or can be called.
class object {
 public:
  object() = default;
  object(const object&) = delete;
  object& operator=(const object&) = delete;
  virtual ~object() = default;
  virtual std::string_view kind() const = 0;
  virtual value attribute(const std::string& name);
  /// Levels of lists and dictionaries in it.
  virtual unsigned depth() const { return 0; }
  virtual bool callable() const { return false; }
  virtual value call(evaluator& e, const arguments& given);
};

/// A value of a template: what Python has for it. Values do not change, except for namespaces.
class value {
 public:
  using any = std::variant<undefined, none, bool, std::int64_t, double, std::shared_ptr<const text>,
                           std::shared_ptr<const list>, std::shared_ptr<const dictionary>,
                           std::shared_ptr<object>>;
  value() = default;
  value(none n) : any_{n} {}
  value(undefined u) : any_{std::move(u)} {}
  value(bool b) : any_{b} {}
  value(std::int64_t n) : any_{n} {}
  value(double d) : any_{d} {}
  value(text t) : any_{std::make_shared<const text>(std::move(t))} {}
  value(std::string s) : value{text{std::move(s)}} {}
  value(const char* s) : value{text{s}} {}
  value(list l);
  value(dictionary d);
  value(std::shared_ptr<object> o) : any_{std::move(o)} {}

  static value missing(std::string why);
  /// One that has no sentence yet.
  bool is_undefined() const { return std::holds_alternative<undefined>(any_); }
  bool is_none() const { return std::holds_alternative<none>(any_); }
  /// Null if it is something else.
  const bool* as_bool() const { return std::get_if<bool>(&any_); }
  const std::int64_t* as_integer() const { return std::get_if<std::int64_t>(&any_); }
  const double* as_float() const { return std::get_if<double>(&any_); }
  const text* as_text() const { return pointed<text>(); }
  const list* as_list() const { return pointed<list>(); }
  const dictionary* as_dictionary() const { return pointed<dictionary>(); }
  object* as_object() const {
    const auto* p = std::get_if<std::shared_ptr<object>>(&any_);
    return p ? p->get() : nullptr;
  }
  const undefined& as_undefined() const { return std::get<undefined>(any_); }
  /// An integer, or a truth value as one.
  std::optional<std::int64_t> integer_like() const;
  /// A number as Python compares it with a float, except that integers beyond 2^53 lose digits,
  /// where Python would compare exactly.
  std::optional<double> number_like() const;
  /// The same object in memory, as Python's `is`.
  bool same_as(const value& other) const;
  /// Levels of lists and dictionaries.
  unsigned depth() const;

 private:
  template <class T>
  const T* pointed() const {
    const auto* p = std::get_if<std::shared_ptr<const T>>(&any_);
    return p ? p->get() : nullptr;
  }
  any any_;
};

/// A sequence.
struct list {
  enum class kind : std::uint8_t {
    list,
    tuple,
    range,
    view,      // of a dictionary: has a length, but no items by number
    iterator,  // what Python computes on demand: it is read once
  };
  list() = default;
  list(std::vector<value> all, kind k = kind::list);

  std::vector<value> items;
  kind what = kind::list;
  unsigned depth = 1;
  mutable bool read = false;  // of an iterator

  bool has_length() const { return what != kind::iterator; }
  bool has_items() const { return what != kind::iterator && what != kind::view; }
};

/// Keys and values in order.
struct dictionary {
  using entry = std::pair<value, value>;
  std::vector<entry> entries;
  unsigned depth = 1;

  /// Null: there is none.
  const value* find(const value& key, work& w) const;
  const value* find(std::string_view key) const;
  void set(value key, value v, work& w);
};

/// Arguments of a call.
struct arguments {
  std::vector<value> positional;
  std::vector<std::pair<std::string, value>> named;
};

/// Names of parameters, unused places empty. {"*"}: any arguments, which all() has.
using parameter_names = std::array<std::string_view, 4>;

/// Arguments by the names of parameters. Fails for too many and for names that are no parameters.
class bound {
 public:
  bound(std::string_view what, const arguments& given, const parameter_names& parameters);
  const arguments& all() const { return all_; }
  /// Null: not given.
  const value* operator[](std::size_t i) const { return given_[i]; }
  bool truth(std::size_t i, bool otherwise) const;
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const;
  /// Fails unless it is given.
  const value& needed(std::size_t i) const;
  const text& needed_text(std::size_t i) const;
  /// None counts as not given.
  std::optional<std::string> optional_text(std::size_t i) const;

 private:
  std::string_view what_;
  const arguments& all_;
  parameter_names parameters_;
  std::array<const value*, std::tuple_size_v<parameter_names>> given_{};
};

/// A filter, method or function by its name. `on` is the filter's input or the method's object.
struct named_function {
  std::string_view name;
  value (*apply)(evaluator& e, const value& on, const bound& args);
  parameter_names parameters{};

  value operator()(evaluator& e, const value& on, const arguments& given) const {
    return apply(e, on, {name, given, parameters});
  }
};

/// The element of that name; null: there is none.
template <class Table>
auto find_named(const Table& all, std::string_view name) {
  const auto found = std::ranges::find(all, name, [](const auto& one) { return one.name; });
  return found == std::end(all) ? nullptr : &*found;
}

/// Python's name of its type, for errors.
std::string type_of(const value& v);
bool truth_of(const value& v);
bool equal(const value& a, const value& b, work& w);
/// < 0, 0, > 0; fails for values that have no order. `sign`: for the error.
int compare(const value& a, const value& b, std::string_view sign, work& w);
/// As Python's str(), and repr().
text shown(const value& v, work& w);
text represented(const value& v, work& w);
std::string float_text(double d);
/// The items that `for` goes through. Fails for values without items.
std::vector<value> items_of(const value& v, work& w);
std::vector<value> characters_of(const text& t, work& w);
std::size_t length_of(const value& v);
/// Fails for an undefined value, with its sentence.
void check_defined(const value& v);

/// How Python's json.dumps() is asked to write.
struct json_style {
  std::optional<std::string> indent;
  std::string between_items = ", ", after_key = ": ";
  bool ascii = false, sorted = false;
};
text json_text(const value& v, const json_style& style, work& w);

}  // namespace troupe::gpu::jinja
