#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "text/jinja/lexer.hpp"
#include "text/jinja/tree.hpp"

namespace troupe::gpu::jinja {

/// Reads tokens. Nesting is limited, since reading and evaluating go down the stack with it.
class parser {
 public:
  explicit parser(std::vector<token> tokens) : tokens_{std::move(tokens)} {}

  /// Throws an error at the present line with a text for fmt::format and its values.
  template <class... Values>
  [[noreturn]] void failure(fmt::format_string<Values...> text, Values&&... values) const {
    throw located_error{now().line, fmt::format(text, std::forward<Values>(values)...)};
  }
  const token& now() const { return tokens_[at_]; }
  const token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  token take() {
    auto t = now();
    if (at_ + 1 < tokens_.size()) ++at_;
    return t;
  }
  bool skip_sign(std::string_view s);
  bool skip_name(std::string_view s);
  void expect_sign(std::string_view s);
  void expect(token::kind k, std::string_view what);
  std::string expect_name(std::string_view what);

  expression_ptr read_expression();
  /// Several with commas between them are a tuple. `conditional`: may it be `a if b`?
  expression_ptr read_expressions(bool conditional = true);
  target read_target(bool attributes);
  /// Filters of a block, `| trim | upper`; `begins`: without the first sign. Null: there is none.
  expression_ptr read_block_filter(bool begins);
  std::vector<parameter> read_parameters();
  expression_ptr checked_call(expression_ptr e) const;

  static constexpr unsigned max_nesting = 200;
  static constexpr unsigned max_depth = 200;

 private:
  /// Counts levels while it is there.
  class level {
   public:
    explicit level(parser& p);
    ~level() { --parser_.level_; }
    level(const level&) = delete;
    level& operator=(const level&) = delete;

   private:
    parser& parser_;
  };
  friend class level;

  expression_ptr made(expression::kind k, unsigned line, std::vector<expression_ptr> parts = {},
                      std::string text = {}) const;
  void count_depth(expression& e) const;
  /// Elements with commas between them, and the sign behind the last.
  template <class One>
  void read_list_until(std::string_view close, One&& one);

  /// Operators of a level of the table in the source and of all tighter ones.
  expression_ptr read_operators(std::size_t index);
  expression_ptr read_not();
  expression_ptr read_comparison();
  expression_ptr read_concatenation();
  expression_ptr read_unary(bool filters);
  expression_ptr read_primary();
  expression_ptr read_number();
  expression_ptr read_list();
  expression_ptr read_dictionary();
  expression_ptr read_parenthesis();
  expression_ptr read_postfix(expression_ptr e);
  expression_ptr read_filters(expression_ptr e);
  expression_ptr read_filter(expression_ptr e);
  expression_ptr read_test(expression_ptr e);
  expression_ptr read_subscript(expression_ptr e);
  expression_ptr read_call(expression_ptr e);
  void read_arguments(expression& call);
  void check_named_function(const expression& filter) const;
  bool begins_test_argument() const;
  target read_one_target(bool attributes);

  std::vector<token> tokens_;
  std::size_t at_ = 0;
  unsigned level_ = 0;
};

}  // namespace troupe::gpu::jinja
