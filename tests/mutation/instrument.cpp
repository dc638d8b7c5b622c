#include "mutation/instrument.hpp"

#include <algorithm>
#include <map>

#include "mutation/tokens.hpp"

namespace troupe::mutation_test {

namespace {

using kind = token::kind;

const std::map<std::string_view, std::string_view> binary = {
    {"<", "<="}, {"<=", "<"}, {">", ">="}, {">=", ">"},  {"==", "!="}, {"!=", "=="}, {"+", "-"},
    {"-", "+"},  {"*", "/"},  {"/", "*"},  {"+=", "-="}, {"-=", "+="}, {"*=", "/="}, {"/=", "*="}};

// The tokens that end the operands of && and ||, besides a bracket.
const std::set<std::string_view> lower = {
    ";",  ",",  "?",   ":",   "=",      "+=", "-=",   "*=",    "/=",        "%=",   "&=",
    "|=", "^=", "<<=", ">>=", "return", "do", "else", "throw", "co_return", "case", "requires"};

/// a && b || c: operators that share one sequence of operands.
struct chain {
  std::size_t begin, end;  // tokens
  std::vector<std::size_t> operators;
};

class instrumenter {
 public:
  instrumenter(std::string_view source, int first_id, const std::set<std::size_t>& without)
      : source_{source}, without_{without}, tokens_{tokens_of(source)}, next_id_{first_id} {
    skip_what_is_not_evaluated();
    find_chains();
    for (std::size_t i = 0; i < tokens_.size(); ++i) find_mutant(i);
  }

  instrumented result() {
    if (tokens_.empty()) return {std::string{source_}, {}};
    auto text = std::string{source_.substr(0, tokens_[0].begin)};
    text += rendered(0, tokens_.size(), false, nullptr, none);
    text += source_.substr(tokens_.back().end);
    return {std::move(text), std::move(mutants_)};
  }

 private:
  static constexpr std::size_t none = -1;

  std::string_view text(std::size_t i) const {
    return i < tokens_.size() ? tokens_[i].text : std::string_view{};
  }
  bool is(std::size_t i, std::string_view t) const { return text(i) == t; }
  bool opens(std::size_t i) const { return is(i, "(") || is(i, "[") || is(i, "{"); }
  bool closes(std::size_t i) const { return is(i, ")") || is(i, "]") || is(i, "}"); }
  bool spaced(std::size_t offset) const {
    return offset < source_.size() && (source_[offset] == ' ' || source_[offset] == '\n');
  }
  bool between_spaces(std::size_t i) const {
    return i > 0 && spaced(tokens_[i].begin - 1) && spaced(tokens_[i].end) && !is(i + 1, "...") &&
           !is(i - 1, "...") && !is(i - 1, "operator");
  }
  std::size_t line_of(std::size_t i) const {
    const auto before = source_.substr(0, tokens_[i].begin);
    return static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  }

  // ---- places without mutants ----

  void skip_what_is_not_evaluated() {
    skipped_.resize(tokens_.size());
    in_for_.resize(tokens_.size());
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if ((is(i, "static_assert") || is(i, "TROUPE_INVARIANT") || is(i, "requires")) &&
          opens(i + 1))
        mark(skipped_, i, tokens_[i + 1].partner);
      if (is(i, "constexpr")) mark(skipped_, i, constant_end(i + 1));
      if (is(i, "case")) mark(skipped_, i, next_of(i, {":"}));
      if (is(i, "enum")) mark(skipped_, i, next_of(i, {";"}));
      if (is(i, "for") && is(i + 1, "(")) mark(in_for_, i, tokens_[i + 1].partner);
      if (is(i, "template") && is(i + 1, "<")) mark(skipped_, i, template_end(i + 1));
      if (is(i, "concept") || (is(i, "requires") && !opens(i + 1)))
        mark(skipped_, i, next_of(i, {";", "{"}));
    }
  }
  void mark(std::vector<bool>& where, std::size_t begin, std::size_t end) {
    for (; begin < std::min(end, tokens_.size()); ++begin) where[begin] = true;
  }
  std::size_t next_of(std::size_t i, const std::set<std::string_view>& texts) const {
    while (i < tokens_.size() && !texts.contains(text(i))) i = std::max(i, tokens_[i].partner) + 1;
    return i;
  }
  /// The end of the constant that follows constexpr: a condition or the value of a variable. A
  /// function is none, since it also runs.
  std::size_t constant_end(std::size_t i) const {
    if (is(i, "(") && is(i - 2, "if")) return tokens_[i].partner;
    auto first = i;
    while (first < tokens_.size() && !opens(first) && !is(first, "=") && !is(first, ";")) ++first;
    return is(first, "(") ? i : next_of(first, {";"});
  }
  std::size_t template_end(std::size_t i) const {
    int depth = 0;
    do {
      if (is(i, "<")) ++depth;
      if (is(i, ">")) --depth;
      if (is(i, ">>")) depth -= 2;
      ++i;
    } while (i < tokens_.size() && depth > 0);
    return i;
  }

  // ---- && and || ----

  bool is_logical(std::size_t i) const {
    const bool qualifier = is(i + 1, "{") || is(i + 1, ";");  // of a member function
    return (is(i, "&&") || is(i, "||")) && between_spaces(i) && !skipped_[i] && !qualifier;
  }
  void find_chains() {
    std::set<std::size_t> seen;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (!is_logical(i) || seen.contains(i)) continue;
      auto c = chain_at(i);
      seen.insert(c.operators.begin(), c.operators.end());
      if (can_be_copied(c)) chains_.emplace(c.begin, std::move(c));
    }
  }
  chain chain_at(std::size_t first) const {
    chain c{first, first, {}};
    while (c.begin > 0) {
      const auto i = c.begin - 1;
      if (opens(i) || lower.contains(text(i))) break;
      c.begin = closes(i) ? tokens_[i].partner : i;
    }
    for (; c.end < tokens_.size() && !closes(c.end) && !lower.contains(text(c.end)); ++c.end) {
      if (is_logical(c.end)) c.operators.push_back(c.end);
      if (opens(c.end)) c.end = tokens_[c.end].partner;
    }
    return c;
  }
  bool can_be_copied(const chain& c) const {
    constexpr std::size_t longest = 4000;
    for (auto line = line_of(c.begin); line <= line_of(c.end - 1); ++line)
      if (without_.contains(line)) return false;
    for (auto i = c.begin; i < c.end; ++i)
      if (tokens_[i].what == kind::text && tokens_[i].text.find('\n') != std::string_view::npos)
        return false;
    const auto length = tokens_[c.end - 1].end - tokens_[c.begin].begin;
    return length * (c.operators.size() + 1) <= longest;
  }
  bool in_a_chain(std::size_t i) const {
    return std::any_of(chains_.begin(), chains_.end(), [&](const auto& x) {
      const auto& all = x.second.operators;
      return std::find(all.begin(), all.end(), i) != all.end();
    });
  }

  // ---- mutants ----

  std::string number(std::size_t i, std::string_view mutated) {
    const auto& t = tokens_[i];
    const auto begin = source_.rfind('\n', t.begin) + 1;  // npos + 1 is 0
    const auto line = source_.substr(begin, source_.find('\n', t.end) - begin);
    auto text = std::string{line};
    text.replace(t.begin - begin, t.text.size(),
                 "{" + std::string{t.text} + " -> " + std::string{mutated} + "}");
    text.erase(0, text.find_first_not_of(' '));
    mutants_.push_back({next_id_, line_of(i), std::move(text)});
    ids_[i] = next_id_;
    return std::to_string(next_id_++);
  }
  void replace(std::size_t i, std::string text) { replaced_[i] = std::move(text); }

  void find_mutant(std::size_t i) {
    if (skipped_[i] || without_.contains(line_of(i))) return;
    const auto t = std::string{text(i)};
    if (is_logical(i)) {
      if (in_a_chain(i)) number(i, t == "&&" ? "||" : "&&");
    } else if (binary.contains(t) && between_spaces(i)) {
      if (lower.contains(t) && (in_for_[i] || is(i + 1, "{"))) return;  // a list is no operand
      replace(i, t + " ::mutation::site<" + number(i, binary.at(t)) + ">{} " + t);
    } else if (t == "!" && is_prefix(i)) {
      replace(i, "::mutation::negation<" + number(i, "") + ">{} ->* !");
    } else if ((t == "++" || t == "--") && is_prefix(i) && !in_for_[i]) {
      const bool up = t == "++";
      replace(i, std::string{"::mutation::"} + (up ? "increment<" : "decrement<") +
                     number(i, up ? "--" : "++") + ">{} ->* " + t);
    } else if ((t == "true" || t == "false") && !is(i - 2, "noexcept")) {
      replace(i,
              "::mutation::constant<" + number(i, t == "true" ? "false" : "true") + ">(" + t + ")");
    } else if ((t == "min" || t == "max") && i > 1 && is(i - 1, "::") && is(i - 2, "std") &&
               (is(i + 1, "(") || is(i + 1, "<"))) {
      replace(i - 2, "");
      replace(i - 1, "");
      replace(i, "::mutation::" + t + "<" + number(i, t == "min" ? "max" : "min") + ">::of");
    }
  }
  /// An operator before its operand, after what cannot be a part of the same operand.
  bool is_prefix(std::size_t i) const {
    if (i == 0 || spaced(tokens_[i].end)) return false;
    return spaced(tokens_[i].begin - 1) || is(i - 1, "(") || is(i - 1, "{") || is(i - 1, "[");
  }

  // ---- the instrumented text ----

  std::string gap(std::size_t i, bool copy) const {
    const auto between = source_.substr(tokens_[i - 1].end, tokens_[i].begin - tokens_[i - 1].end);
    return copy && !between.empty() ? " " : std::string{between};
  }
  /// Tokens begin to end; a copy has no newlines. `flipped` is an && that is to be ||, or the
  /// reverse.
  std::string rendered(std::size_t begin, std::size_t end, bool copy, const chain* inside,
                       std::size_t flipped) const {
    std::string out;
    for (auto i = begin; i < end; ++i) {
      if (i > begin) out += gap(i, copy);
      const auto c = chains_.find(i);
      if (c != chains_.end() && &c->second != inside) {
        out += rendered(c->second, copy);
        i = c->second.end - 1;
        continue;
      }
      const auto r = replaced_.find(i);
      if (i == flipped)
        out += is(i, "&&") ? "||" : "&&";
      else
        out += r != replaced_.end() ? r->second : std::string{text(i)};
    }
    return out;
  }
  std::string rendered(const chain& c, bool copy) const {
    std::string out = "(";
    for (const auto i : c.operators)
      out += "::mutation::on<" + std::to_string(ids_.at(i)) + ">() ? (" +
             rendered(c.begin, c.end, true, &c, i) + ") : ";
    return out + "(" + rendered(c.begin, c.end, copy, &c, none) + "))";
  }

  std::string_view source_;
  const std::set<std::size_t>& without_;
  std::vector<token> tokens_;
  int next_id_;
  std::vector<bool> skipped_, in_for_;
  std::map<std::size_t, chain> chains_;  // by their first tokens
  std::map<std::size_t, std::string> replaced_;
  std::map<std::size_t, int> ids_;
  std::vector<mutant> mutants_;
};

}  // namespace

instrumented instrument(std::string_view source, int first_id,
                        const std::set<std::size_t>& without) {
  return instrumenter{source, first_id, without}.result();
}

}  // namespace troupe::mutation_test
