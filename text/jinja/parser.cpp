#include "text/jinja/parser.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace troupe::gpu::jinja {

namespace {

using kind = expression::kind;

std::string shown_token(const token& t) {
  constexpr std::pair<token::kind, const char*> descriptions[] = {
      {token::kind::end, "the end of the template"},
      {token::kind::data, "text"},
      {token::kind::print_begin, "'{{'"},
      {token::kind::print_end, "'}}'"},
      {token::kind::block_begin, "'{%'"},
      {token::kind::block_end, "'%}'"},
      {token::kind::string, "a string"}};
  for (const auto& [what, text] : descriptions)
    if (t.what == what) return text;
  return fmt::format("'{}'", t.text);
}

/// Operators from the loosest level to the tightest. Those of a level read from left to right,
/// unless the level has a function of its own. `**` is looser than signs, as in Jinja and unlike
/// Python: -2 ** 2 is 4.
struct operator_level {
  kind what;
  std::array<std::string_view, 4> operators;  // unused places empty
};
constexpr operator_level levels[] = {
    {kind::either, {"or"}},      {kind::both, {"and"}},
    {kind::comparison, {}},      {kind::calculation, {"+", "-"}},
    {kind::concatenation, {}},   {kind::calculation, {"*", "/", "//", "%"}},
    {kind::calculation, {"**"}},
};

constexpr std::size_t level_behind(kind k) {
  return static_cast<std::size_t>(std::ranges::find(levels, k, &operator_level::what) - levels) + 1;
}

std::vector<expression_ptr> list_of(expression_ptr a, expression_ptr b = nullptr) {
  std::vector<expression_ptr> out;
  out.push_back(std::move(a));
  if (b) out.push_back(std::move(b));
  return out;
}

}  // namespace

/// Bounds the recursion of the parser itself: brackets and prefixes, one call deeper each.
parser::level::level(parser& p) : parser_{p} {
  if (++p.level_ <= max_nesting) return;
  --p.level_;
  p.failure("nests expressions deeper than {} levels", max_nesting);
}

bool parser::skip_sign(std::string_view s) {
  if (!now().is_sign(s)) return false;
  take();
  return true;
}

bool parser::skip_name(std::string_view s) {
  if (!now().is_name(s)) return false;
  take();
  return true;
}

void parser::expect_sign(std::string_view s) {
  if (!skip_sign(s)) failure("found {}, expected '{}'", shown_token(now()), s);
}

void parser::expect(token::kind k, std::string_view what) {
  if (now().what != k) failure("found {}, expected {}", shown_token(now()), what);
  take();
}

std::string parser::expect_name(std::string_view what) {
  auto name = now().text;
  expect(token::kind::name, what);
  return name;
}

/// Loops build deep trees without recursion (a + a + a + ...), yet the evaluator and the destructor
/// descend them: the depth of a tree is bounded apart from that of the parser.
void parser::count_depth(expression& e) const {
  unsigned inner = 0;
  for (const auto& p : e.parts)
    if (p) inner = std::max(inner, p->depth);
  for (const auto& [name, p] : e.named) inner = std::max(inner, p->depth);
  if (inner >= max_depth) failure("has an expression of more than {} levels", max_depth);
  e.depth = inner + 1;
}

expression_ptr parser::made(kind k, unsigned line, std::vector<expression_ptr> parts,
                            std::string text) const {
  auto e = std::make_unique<expression>();
  e->what = k;
  e->line = line;
  e->parts = std::move(parts);
  e->text = std::move(text);
  count_depth(*e);
  return e;
}

expression_ptr parser::read_expression() {
  const level one{*this};
  const auto line = now().line;
  auto e = read_operators(0);
  while (skip_name("if")) {
    auto parts = list_of(read_operators(0), std::move(e));
    parts.push_back(skip_name("else") ? read_expression() : nullptr);
    e = made(kind::conditional, line, std::move(parts));
  }
  return e;
}

/// `conditional` is false in `for` and `if` tags, where an `if` belongs to the tag.
expression_ptr parser::read_expressions(bool conditional) {
  const auto line = now().line;
  std::vector<expression_ptr> all;
  bool tuple = false;
  const auto ends = [&] {
    return now().what == token::kind::print_end || now().what == token::kind::block_end ||
           now().is_sign(")") || now().is_name("recursive");
  };
  while (!ends()) {
    all.push_back(conditional ? read_expression() : read_operators(0));
    if (!skip_sign(",")) break;
    tuple = true;
  }
  if (tuple) return made(kind::tuple, line, std::move(all));
  if (all.empty()) failure("found {}, expected an expression", shown_token(now()));
  return std::move(all[0]);
}

expression_ptr parser::read_operators(std::size_t index) {
  if (index == std::size(levels)) return read_unary(true);
  const auto& [what, operators] = levels[index];
  if (what == kind::comparison) return read_not();
  if (what == kind::concatenation) return read_concatenation();
  const auto is_now = [&](std::string_view o) { return now().is_sign(o) || now().is_name(o); };
  auto left = read_operators(index + 1);
  while (std::ranges::any_of(operators, is_now)) {
    auto t = take();
    auto right = read_operators(index + 1);
    left = made(what, t.line, list_of(std::move(left), std::move(right)), std::move(t.text));
  }
  return left;
}

template <class One>
void parser::read_list_until(std::string_view close, One&& one) {
  while (!now().is_sign(close)) {
    one();
    if (!skip_sign(",")) break;
  }
  expect_sign(close);
}

expression_ptr parser::read_not() {
  if (!now().is_name("not")) return read_comparison();
  const level one{*this};
  const auto line = take().line;
  return made(kind::inverse, line, list_of(read_not()));
}

expression_ptr parser::read_comparison() {
  constexpr std::string_view signs[] = {"==", "!=", "<=", ">=", "<", ">"};
  constexpr auto inner = level_behind(kind::comparison);
  const auto line = now().line;
  std::vector<expression_ptr> parts;
  std::vector<std::string> found;
  parts.push_back(read_operators(inner));
  for (;;) {
    const auto is_now = [&](std::string_view sign) { return now().is_sign(sign); };
    const bool inverse = now().is_name("not") && next().is_name("in");
    if (!inverse && !now().is_name("in") && std::ranges::none_of(signs, is_now)) break;
    found.push_back(take().text);
    if (inverse) found.back() += " " + take().text;
    parts.push_back(read_operators(inner));
  }
  if (found.empty()) return std::move(parts[0]);
  auto e = made(kind::comparison, line, std::move(parts));
  e->signs = std::move(found);
  return e;
}

expression_ptr parser::read_concatenation() {
  const auto line = now().line;
  constexpr auto inner = level_behind(kind::concatenation);
  auto parts = list_of(read_operators(inner));
  while (skip_sign("~")) parts.push_back(read_operators(inner));
  if (parts.size() == 1) return std::move(parts[0]);
  return made(kind::concatenation, line, std::move(parts));
}

expression_ptr parser::read_unary(bool filters) {
  const level one{*this};
  const auto line = now().line;
  const bool negative = skip_sign("-");
  auto e = negative || skip_sign("+")
               ? made(negative ? kind::negative : kind::positive, line, list_of(read_unary(false)))
               : read_primary();
  e = read_postfix(std::move(e));
  return filters ? read_filters(std::move(e)) : std::move(e);
}

expression_ptr parser::read_primary() {
  const auto& t = now();
  if (t.what == token::kind::integer || t.what == token::kind::real) return read_number();
  if (t.is_sign("(")) return read_parenthesis();
  if (t.is_sign("[")) return read_list();
  if (t.is_sign("{")) return read_dictionary();
  auto e = made(kind::constant, t.line);
  if (t.what == token::kind::string) {
    std::string all;
    while (now().what == token::kind::string) all += take().text;
    e->constant = value{std::move(all)};
    return e;
  }
  if (t.what != token::kind::name) failure("found {}, expected an expression", shown_token(t));
  const auto name = take().text;
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    e->constant = value{name[0] == 't' || name[0] == 'T'};
  } else if (name == "none" || name == "None") {
    e->constant = value{none{}};
  } else {
    e->what = kind::name;
    e->text = name;
  }
  return e;
}

expression_ptr parser::read_number() {
  auto e = made(kind::constant, now().line);
  const bool real = now().what == token::kind::real;
  const auto written = now().text;
  if (real) {
    double d = 0;
    std::from_chars(written.data(), written.data() + written.size(), d);
    e->constant = value{d};
  } else {
    std::int64_t n = 0;
    if (std::from_chars(written.data(), written.data() + written.size(), n).ec != std::errc{})
      failure("found the number {}, expected at most 63 bits", written);
    if (written.size() > 1 && written[0] == '0' && n != 0)
      failure("found the number {}, expected none with leading zeros", written);
    e->constant = value{n};
  }
  take();
  return e;
}

expression_ptr parser::read_list() {
  const auto line = take().line;
  std::vector<expression_ptr> all;
  read_list_until("]", [&] { all.push_back(read_expression()); });
  return made(kind::list, line, std::move(all));
}

expression_ptr parser::read_dictionary() {
  const auto line = take().line;
  std::vector<expression_ptr> all;
  read_list_until("}", [&] {
    all.push_back(read_expression());
    expect_sign(":");
    all.push_back(read_expression());
  });
  return made(kind::dictionary, line, std::move(all));
}

expression_ptr parser::read_parenthesis() {
  const auto line = take().line;
  if (skip_sign(")")) return made(kind::tuple, line);
  auto e = read_expressions();
  expect_sign(")");
  return e;
}

expression_ptr parser::read_postfix(expression_ptr e) {
  for (;;) {
    if (now().is_sign(".") || now().is_sign("["))
      e = read_subscript(std::move(e));
    else if (now().is_sign("("))
      e = read_call(std::move(e));
    else
      return e;
  }
}

expression_ptr parser::read_filters(expression_ptr e) {
  for (;;) {
    if (skip_sign("|"))
      e = read_filter(std::move(e));
    else if (now().is_name("is"))
      e = read_test(std::move(e));
    else if (now().is_sign("("))
      e = read_call(std::move(e));
    else
      return e;
  }
}

expression_ptr parser::read_filter(expression_ptr e) {
  const auto line = now().line;
  auto name = expect_name("the name of a filter");
  if (!is_filter(name)) failure("the filter '{}' is not supported", name);
  auto f = made(kind::filter, line, list_of(std::move(e)), std::move(name));
  if (now().is_sign("(")) read_arguments(*f);
  check_named_function(*f);
  return f;
}

/// A name that is a constant is checked when the model loads, not in a client's request.
void parser::check_named_function(const expression& f) const {
  const auto named_by = [&](std::size_t i) -> const jinja::text* {
    return f.parts.size() > i ? f.parts[i]->constant.as_text() : nullptr;
  };
  const auto& name = f.text;
  if (const auto* filter = named_by(1); name == "map" && filter && !is_filter(filter->bytes()))
    failure("the filter '{}' is not supported", filter->bytes());
  const bool by_test = name == "select" || name == "reject";
  const auto* test = named_by(by_test ? 1 : 2);
  if ((by_test || name == "selectattr" || name == "rejectattr") && test && !is_test(test->bytes()))
    failure("the test '{}' is not supported", test->bytes());
}

bool parser::begins_test_argument() const {
  const auto& t = now();
  if (t.what == token::kind::name)
    return !t.is_name("else") && !t.is_name("or") && !t.is_name("and");
  return t.what == token::kind::string || t.what == token::kind::integer ||
         t.what == token::kind::real || t.is_sign("(") || t.is_sign("[") || t.is_sign("{");
}

expression_ptr parser::read_test(expression_ptr e) {
  const auto line = take().line;
  const bool inverse = skip_name("not");
  auto name = expect_name("the name of a test");
  if (!is_test(name)) failure("the test '{}' is not supported", name);
  auto t = made(kind::test, line, list_of(std::move(e)), std::move(name));
  if (now().is_sign("(")) {
    read_arguments(*t);
  } else if (begins_test_argument()) {
    if (now().is_name("is")) failure("found 'is' behind a test, expected a single test");
    // An inner `if` belongs to the expression around it.
    if (!now().is_name("if") && !now().is_name("in") && !now().is_name("not")) {
      t->parts.push_back(read_postfix(read_primary()));
      count_depth(*t);
    }
  }
  return inverse ? made(kind::inverse, line, list_of(std::move(t))) : std::move(t);
}

expression_ptr parser::read_subscript(expression_ptr e) {
  const auto sign = take();
  if (sign.text == ".") {
    if (now().what == token::kind::integer)
      return made(kind::item, sign.line, list_of(std::move(e), read_number()));
    return made(kind::attribute, sign.line, list_of(std::move(e)),
                expect_name("the name of an attribute"));
  }
  const level one{*this};
  auto parts = list_of(std::move(e));
  const auto part = [&] {
    const bool none_there = now().is_sign(":") || now().is_sign("]");
    parts.push_back(none_there ? nullptr : read_expression());
  };
  part();
  if (parts.back() && !now().is_sign(":")) {
    if (now().is_sign(",")) failure("found ',', a subscript of several values is not supported");
    expect_sign("]");
    return made(kind::item, sign.line, std::move(parts));
  }
  while (parts.size() < 4 && skip_sign(":")) part();
  if (parts.size() < 3) failure("found {}, expected a subscript", shown_token(now()));
  parts.resize(4);
  expect_sign("]");
  return made(kind::slice, sign.line, std::move(parts));
}

expression_ptr parser::read_call(expression_ptr e) {
  const auto line = now().line;
  if (e->what == kind::attribute && !is_method(e->text))
    failure("the method '{}' is not supported", e->text);
  auto call = made(kind::call, line, list_of(std::move(e)));
  read_arguments(*call);
  return call;
}

void parser::read_arguments(expression& call) {
  const level one{*this};
  expect_sign("(");
  read_list_until(")", [&] {
    if (now().is_sign("*") || now().is_sign("**")) failure("arguments with '*' are not supported");
    if (now().what == token::kind::name && next().is_sign("=")) {
      auto name = take().text;
      take();
      call.named.emplace_back(std::move(name), read_expression());
    } else {
      if (!call.named.empty()) failure("found an argument without a name behind named ones");
      call.parts.push_back(read_expression());
    }
  });
  count_depth(call);
}

target parser::read_one_target(bool attributes) {
  target t;
  if (now().is_sign("(")) failure("a tuple in parentheses as a target is not supported");
  t.name = expect_name("a name");
  if (attributes && skip_sign(".")) t.attribute = expect_name("the name of an attribute");
  constexpr std::string_view constants[] = {"true", "false", "none", "True", "False", "None"};
  if (std::ranges::find(constants, t.name) != std::end(constants))
    failure("'{}' cannot be set", t.name);
  return t;
}

target parser::read_target(bool attributes) {
  auto first = read_one_target(attributes);
  if (!now().is_sign(",")) return first;
  target t;
  t.several.push_back(std::move(first));
  while (skip_sign(",")) {
    if (now().is_name("in") || now().is_sign("=")) break;
    t.several.push_back(read_one_target(attributes));
  }
  return t;
}

expression_ptr parser::read_block_filter(bool begins) {
  expression_ptr e;
  if (begins) e = read_filter(nullptr);
  while (skip_sign("|")) e = read_filter(std::move(e));
  return e;
}

std::vector<parameter> parser::read_parameters() {
  std::vector<parameter> all;
  expect_sign("(");
  read_list_until(")", [&] {
    parameter p{expect_name("the name of a parameter"), nullptr};
    if (skip_sign("="))
      p.otherwise = read_expression();
    else if (!all.empty() && all.back().otherwise)
      failure("the parameter '{}' has no default, but one before it has", p.name);
    all.push_back(std::move(p));
  });
  return all;
}

expression_ptr parser::checked_call(expression_ptr e) const {
  if (e->what != kind::call) failure("found an expression behind 'call', expected a call");
  return e;
}

}  // namespace troupe::gpu::jinja
