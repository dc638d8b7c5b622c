#pragma once

#include <fmt/format.h>

#include <set>
#include <string>
#include <vector>

#include "formats/parse/value.hpp"

namespace troupe::formats {

/// Builds a value from a parser's events. Each call returns false on the first invalid event;
/// `problem` and `line` then describe it. Later calls have no effect.
class tree_builder {
 public:
  std::string problem;
  int line = 0;

  bool begin(value::kind what, int at) {
    if (open_.size() >= depth_limit) return refuse(at, "nested deeper than {} levels", depth_limit);
    auto& v = open_.emplace_back().v;
    v.what = what;
    v.line = at;
    return count(at);
  }

  bool end() {
    if (!problem.empty() || open_.empty()) return false;
    value v = std::move(open_.back().v);
    open_.pop_back();
    return add(std::move(v));
  }

  /// Adds a scalar or null: a map's next key, or a value.
  bool leaf(value::kind what, std::string text, bool quoted, int at) {
    if (!open_.empty() && open_.back().v.what == value::kind::map && !open_.back().has_key) {
      if (what != value::kind::scalar) return refuse(at, "map keys must be scalars");
      return key(std::move(text), at);
    }
    value v;
    v.what = what;
    v.text = std::move(text);
    v.quoted = quoted;
    v.line = at;
    return count(at) && add(std::move(v));
  }

  bool key(std::string text, int at) {
    auto& top = open_.back();
    if (!top.seen.insert(text).second) return refuse(at, "duplicate key '{}'", shown(text));
    top.key = std::move(text);
    top.key_line = at;
    top.has_key = true;
    return count(at);
  }

  template <class... T>
  bool refuse(int at, fmt::format_string<T...> why, T&&... values) {
    if (problem.empty()) {
      problem = fmt::format(why, std::forward<T>(values)...);
      line = at;
    }
    return false;
  }

  value root;

 private:
  struct level {
    value v;
    std::set<std::string> seen;
    std::string key;
    int key_line = 0;
    bool has_key = false;
  };

  bool add(value v) {
    if (open_.empty()) {
      root = std::move(v);
      return true;
    }
    auto& top = open_.back();
    if (top.v.what == value::kind::map) {
      if (!top.has_key) return refuse(v.line, "map keys must be scalars");
      top.v.keys.push_back(std::move(top.key));
      top.v.key_lines.push_back(top.key_line);
      top.has_key = false;
    }
    top.v.items.push_back(std::move(v));
    return true;
  }

  bool count(int at) {
    if (++values_ > value_limit) return refuse(at, "more than {} values in one file", value_limit);
    return problem.empty();
  }

  std::vector<level> open_;
  std::size_t values_ = 0;
};

}  // namespace troupe::formats
