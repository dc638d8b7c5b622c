#include "mutation/tokens.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <utility>

namespace troupe::mutation_test {

namespace {

// Longer ones first.
constexpr std::array<std::string_view, 25> signs = {
    "<=>", "<<=", ">>=", "...", "->*", "::", "->", "++", "--", "<<", ">>", "<=", ">=",
    "==",  "!=",  "&&",  "||",  "+=",  "-=", "*=", "/=", "%=", "&=", "|=", "^="};

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

class reader {
 public:
  explicit reader(std::string_view source) : source_{source} {}

  std::vector<token> all() {
    while (at_ < source_.size()) next();
    return std::move(tokens_);
  }

 private:
  bool sees(std::string_view text) const { return source_.substr(at_).starts_with(text); }
  char here() const { return source_[at_]; }

  void next() {
    if (std::isspace(static_cast<unsigned char>(here()))) {
      line_begins_ = line_begins_ || here() == '\n';
      ++at_;
      return;
    }
    const bool line_begins = std::exchange(line_begins_, false);
    if (here() == '#' && line_begins) {
      skip_preprocessor_line();
    } else if (sees("//")) {
      at_ = std::min(source_.find('\n', at_), source_.size());
    } else if (sees("/*")) {
      at_ = std::min(source_.find("*/", at_), source_.size() - 2) + 2;
    } else if (sees("R\"")) {
      const auto open = source_.find('(', at_);
      const auto end = ")" + std::string{source_.substr(at_ + 2, open - at_ - 2)} + "\"";
      add(token::kind::text, source_.find(end, open) + end.size());
    } else if (here() == '"' || here() == '\'') {
      add(token::kind::text, literal_end());
    } else if (std::isdigit(static_cast<unsigned char>(here()))) {
      add(token::kind::number, number_end());
    } else if (is_word(here())) {
      auto end = at_;
      while (end < source_.size() && is_word(source_[end])) ++end;
      add(token::kind::word, end);
    } else {
      add_sign();
    }
  }

  void skip_preprocessor_line() {
    do at_ = std::min(source_.find('\n', at_ + 1), source_.size());
    while (at_ < source_.size() && source_[at_ - 1] == '\\');
  }

  std::size_t literal_end() const {
    auto end = at_ + 1;
    while (source_[end] != here()) end += source_[end] == '\\' ? 2 : 1;
    return end + 1;
  }

  std::size_t number_end() const {
    auto end = at_;
    const auto follows = [&](char c) {
      const char last = source_[end - 1];
      return is_word(c) || c == '.' || c == '\'' ||
             ((c == '-' || c == '+') && (last == 'e' || last == 'E') && !sees("0x"));
    };
    for (++end; end < source_.size() && follows(source_[end]);) ++end;
    return end;
  }

  void add_sign() {
    std::size_t length = 1;
    for (const auto sign : signs)
      if (length == 1 && sees(sign)) length = sign.size();
    const auto c = here();
    const auto index = tokens_.size();
    add(token::kind::sign, at_ + length);
    if (length > 1) return;
    if (c == '(' || c == '[' || c == '{') open_.push_back(index);
    if ((c == ')' || c == ']' || c == '}') && !open_.empty()) {
      tokens_[index].partner = open_.back();
      tokens_[open_.back()].partner = index;
      open_.pop_back();
    }
  }

  void add(token::kind what, std::size_t end) {
    tokens_.push_back({what, at_, end, source_.substr(at_, end - at_), tokens_.size()});
    at_ = end;
  }

  std::string_view source_;
  std::size_t at_ = 0;
  bool line_begins_ = true;
  std::vector<token> tokens_;
  std::vector<std::size_t> open_;
};

}  // namespace

std::vector<token> tokens_of(std::string_view source) {
  return reader{source}.all();
}

}  // namespace troupe::mutation_test
