#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.hpp"

namespace troupe::gpu::jinja {

struct expression;
using expression_ptr = std::unique_ptr<expression>;

/// An expression as it is written.
struct expression {
  enum class kind : std::uint8_t {
    constant,
    name,
    list,
    tuple,
    dictionary,  // parts: key, value, key, value, ...
    attribute,   // parts[0].text
    item,        // parts[0][parts[1]]
    slice,       // parts[0][parts[1]:parts[2]:parts[3]], which may be null
    call,        // parts[0](the others, named)
    filter,      // parts[0] | text(the others, named); of a block parts[0] is null
    test,        // parts[0] is text(the others, named)
    negative,
    positive,
    inverse,      // not
    both,         // and
    either,       // or
    calculation,  // parts[0] text parts[1]
    comparison,   // parts[0] signs[0] parts[1] signs[1] parts[2] ...
    concatenation,
    conditional,  // parts[1] if parts[0] else parts[2], which may be null
  };
  kind what = kind::constant;
  unsigned line = 0, depth = 1;
  std::string text;
  value constant;
  std::vector<expression_ptr> parts;
  std::vector<std::pair<std::string, expression_ptr>> named;
  std::vector<std::string> signs;
};

/// Target of `set` and `for`: a name, an attribute of a namespace, or several of them.
struct target {
  std::string name, attribute;
  std::vector<target> several;
};

struct statement;
using body = std::vector<statement>;

struct parameter {
  std::string name;
  expression_ptr otherwise;  // null: none
};

struct branch {
  expression_ptr condition;  // null: else
  body then;
};

/// A tag with what it contains, or text.
struct statement {
  enum class kind : std::uint8_t {
    text,
    print,    // values[0]
    loop,     // for to in values[0] if values[1], which may be null; inner, otherwise
    choice,   // if
    set,      // to = values[0]
    capture,  // to = the text of inner, through the filters values[0], which may be null
    macro,    // name(parameters): inner
    call,     // values[0], a call; inner is its caller(parameters)
    filter,   // inner through the filters values[0]
    with,     // several `to` in targets, values; inner
    scope,    // inner
    leave,    // break
    again,    // continue
  };
  kind what = kind::text;
  unsigned line = 0;
  std::string name;  // or the text
  target to;
  std::vector<target> targets;
  std::vector<expression_ptr> values;
  std::vector<parameter> parameters;
  std::vector<branch> branches;
  body inner, otherwise;
};

/// A whole template. Throws located_error for what is wrong or not supported.
body parse_template(std::string_view source);

/// Names that are supported, for the parser.
bool is_filter(std::string_view name);
bool is_test(std::string_view name);
bool is_method(std::string_view name);

}  // namespace troupe::gpu::jinja
