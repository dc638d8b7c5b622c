#include <algorithm>

#include "text/jinja/parser.hpp"

namespace troupe::gpu::jinja {

namespace {

/// Reads tags and what is between them. Statements of Jinja that chat templates use, and
/// transformers' `generation`, which marks the tokens of answers for training and only prints its
/// inside here. Tags that load other files (include, import, extends) and tags of extensions are
/// refused by name when the template is read.
class statement_parser {
 public:
  explicit statement_parser(std::string_view source) : p_{tokens_of(source)} {}

  body run() { return read({}); }

 private:
  using names = std::vector<std::string_view>;

  /// Until a tag with one of these names, which is left; without names until the end. The level
  /// bounds the recursion of parser and evaluator against a template of nothing but blocks. It is
  /// not restored after a failure, because that ends the whole parse.
  body read(const names& ends) {
    if (++level_ > max_blocks) p_.failure("nests blocks deeper than {}", max_blocks);
    body all;
    for (; p_.now().what != token::kind::end; all.push_back(read_one())) {
      if (p_.now().what != token::kind::block_begin) continue;
      const auto& name = p_.next().text;
      if (std::ranges::find(ends, name) != ends.end()) break;
    }
    if (!ends.empty() && p_.now().what == token::kind::end)
      p_.failure("ends within a block, expected '{}'", ends.back());
    --level_;
    return all;
  }

  /// The inside of a block, and the tag that ends it.
  body read_inside(std::string_view end) {
    close();
    auto all = read({end});
    p_.take(), p_.take();
    close();
    return all;
  }

  /// The same of a block that cannot leave a loop around it. Macros, captures and filter blocks are
  /// written to a text of their own, which a jump out of them would leave unfinished; `break` and
  /// `continue` need a loop within the block.
  body read_apart(std::string_view end) {
    const auto loops = std::exchange(loops_, 0);
    auto all = read_inside(end);
    loops_ = loops;
    return all;
  }

  void close() { p_.expect(token::kind::block_end, "'%}'"); }

  statement read_one() {
    statement s;
    s.line = p_.now().line;
    if (p_.now().what == token::kind::data) {
      s.name = p_.take().text;
      return s;
    }
    if (p_.now().what == token::kind::print_begin) {
      p_.take();
      s.what = statement::kind::print;
      s.values.push_back(p_.read_expressions());
      p_.expect(token::kind::print_end, "'}}'");
      return s;
    }
    p_.take();
    const auto name = p_.expect_name("the name of a tag");
    read_tag(name, s);
    return s;
  }

  void read_tag(const std::string& name, statement& s) {
    if (name == "for") return read_for(s);
    if (name == "if") return read_if(s);
    if (name == "set") return read_set(s);
    if (name == "macro") return read_macro(s);
    if (name == "call") return read_call(s);
    if (name == "with") return read_with(s);
    if (name == "break" || name == "continue") return read_jump(name, s);
    if (name == "filter") {
      s.what = statement::kind::filter;
      s.values.push_back(p_.read_block_filter(true));
      s.inner = read_apart("endfilter");
    } else if (name == "generation") {
      s.what = statement::kind::scope;
      s.inner = read_apart("endgeneration");
    } else {
      p_.failure("the tag '{}' is not supported here", name);
    }
  }

  void read_jump(const std::string& name, statement& s) {
    if (loops_ == 0) p_.failure("found '{}' outside of a loop", name);
    s.what = name == "break" ? statement::kind::leave : statement::kind::again;
    close();
  }

  // The expression is read without conditionals: an `if` behind it filters the items. Recursive
  // loops would let the template choose the depth of the evaluation by its data, and are refused.
  void read_for(statement& s) {
    s.what = statement::kind::loop;
    s.to = p_.read_target(false);
    if (!p_.skip_name("in")) p_.failure("expected 'in' behind the names of a for");
    s.values.push_back(p_.read_expressions(false));
    s.values.push_back(p_.skip_name("if") ? p_.read_expression() : nullptr);
    if (p_.now().is_name("recursive")) p_.failure("a recursive loop is not supported");
    close();
    ++loops_;
    s.inner = read({"else", "endfor"});
    --loops_;
    p_.take();
    const bool otherwise = p_.take().text == "else";
    if (otherwise) return void(s.otherwise = read_inside("endfor"));
    close();
  }

  // A chain of elif is a flat list of branches rather than a nested tree, so its length is not
  // bounded by the limit of nesting.
  void read_if(statement& s) {
    s.what = statement::kind::choice;
    for (bool more = true; more;) {
      branch b{p_.read_expressions(false), {}};
      close();
      b.then = read({"elif", "else", "endif"});
      s.branches.push_back(std::move(b));
      p_.take();
      more = p_.now().text == "elif";
      const bool otherwise = p_.now().text == "else";
      p_.take();
      if (otherwise)
        s.branches.push_back({nullptr, read_inside("endif")});
      else if (!more)
        close();
    }
  }

  // With '=' a value, else a block whose text becomes the value, through filters if any are named.
  void read_set(statement& s) {
    s.what = statement::kind::set;
    s.to = p_.read_target(true);
    if (p_.skip_sign("=")) {
      s.values.push_back(p_.read_expressions());
      return close();
    }
    s.what = statement::kind::capture;
    s.values.push_back(p_.read_block_filter(false));
    s.inner = read_apart("endset");
  }

  void read_macro(statement& s) {
    s.what = statement::kind::macro;
    s.name = p_.expect_name("the name of a macro");
    s.parameters = p_.read_parameters();
    s.inner = read_apart("endmacro");
  }

  void read_call(statement& s) {
    s.what = statement::kind::call;
    if (p_.now().is_sign("(")) s.parameters = p_.read_parameters();
    s.values.push_back(p_.checked_call(p_.read_expression()));
    s.inner = read_apart("endcall");
  }

  // Targets are plain names. A `with` is no boundary for jumps: its inside may leave the loop
  // around.
  void read_with(statement& s) {
    s.what = statement::kind::with;
    while (p_.now().what != token::kind::block_end) {
      if (!s.targets.empty()) p_.expect_sign(",");
      s.targets.push_back({p_.expect_name("a name"), {}, {}});
      p_.expect_sign("=");
      s.values.push_back(p_.read_expression());
    }
    s.inner = read_inside("endwith");
  }

  static constexpr unsigned max_blocks = 60;
  parser p_;
  unsigned level_ = 0, loops_ = 0;
};

}  // namespace

body parse_template(std::string_view source) {
  return statement_parser{source}.run();
}

}  // namespace troupe::gpu::jinja
