#include "text/jinja/lexer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "text/base/characters.hpp"
#include "text/jinja/text.hpp"

namespace troupe::gpu::jinja {

namespace {

/// A template of the largest accepted size could hold a token per byte or two; each token owns a
/// string, so the number is bounded before the parser builds a tree from them.
constexpr std::size_t max_tokens = 200'000;

/// Names are ASCII here. Jinja takes any identifier of Python, letters of other scripts included;
/// the refusal names the character.
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool in_name(char c) {
  return begins_name(c) || is_digit(c);
}

std::string_view without_space_behind(std::string_view s) {
  const text all{std::string{s}};
  return s.substr(0, stripped(all, std::nullopt, sides::right).size());
}

/// Every kind of line end as \n, and without the last. Jinja normalizes line ends before it reads
/// anything and drops one final newline, since keep_trailing_newline is off in transformers. Line
/// numbers of errors count the result.
std::string with_newlines(std::string_view source) {
  std::string out;
  for (std::size_t at = 0; at < source.size(); ++at) {
    out += source[at] == '\r' ? '\n' : source[at];
    if (source.substr(at, 2) == "\r\n") ++at;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

/// Splits a template into tokens in one pass. The rules of white space are those of trim_blocks and
/// lstrip_blocks, which transformers switches on for chat templates: a block tag that stands alone
/// on its line leaves neither the indentation before it nor the newline behind it. A byte too many
/// there is another prompt than the one the model was trained with.
class lexer {
 public:
  explicit lexer(std::string_view source) : text_{with_newlines(source)}, s_{text_} {}

  std::vector<token> run() {
    while (at_ < s_.size()) {
      const auto begin = next_tag();
      take_data(begin);
      if (begin == s_.npos) break;
      take_tag(begin);
    }
    add(token::kind::end, "");
    return std::move(tokens_);
  }

 private:
  template <class... Values>
  [[noreturn]] void failure(fmt::format_string<Values...> text, Values&&... values) const {
    throw located_error{line_, fmt::format(text, std::forward<Values>(values)...)};
  }

  void add(token::kind k, std::string t) {
    if (tokens_.size() >= max_tokens)
      failure("has more than {} tokens, expected fewer", max_tokens);
    tokens_.push_back({k, std::move(t), line_});
  }

  void move_to(std::size_t to) {
    line_ += static_cast<unsigned>(std::count(s_.begin() + static_cast<std::ptrdiff_t>(at_),
                                              s_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  void skip_space() {
    auto to = at_;
    while (to < s_.size()) {
      const auto size = character_size(s_, to);
      if (!is_space(s_.substr(to, size))) break;
      to += size;
    }
    move_to(to);
  }

  // A brace begins a tag only with one of three characters behind it; any other brace is text,
  // which templates that print JSON rely on.
  std::size_t next_tag() const {
    for (auto at = s_.find('{', at_); at != s_.npos; at = s_.find('{', at + 1))
      if (at + 1 < s_.size() && (s_[at + 1] == '{' || s_[at + 1] == '%' || s_[at + 1] == '#'))
        return at;
    return s_.npos;
  }

  /// The text before a tag, as the sign behind the tag's beginning wants it. '-' takes away all
  /// white space, '+' switches lstrip_blocks off for this tag, and without a sign only the
  /// indentation goes, provided that the tag is the first thing on its line. Printing tags keep
  /// their indentation. `line_starts_` carries over whether the text behind the tag before began a
  /// line.
  std::string_view trimmed(std::string_view data, char sign, bool prints) const {
    if (sign == '-') return without_space_behind(data);
    if (sign == '+' || prints) return data;
    const auto line = data.rfind('\n') + 1;  // 0: there is none
    if (line == 0 && !line_starts_) return data;
    const auto rest = data.substr(line);
    return without_space_behind(rest).empty() ? data.substr(0, line) : data;
  }

  void take_data(std::size_t end) {
    auto data = s_.substr(at_, end == s_.npos ? s_.npos : end - at_);
    const auto size = data.size();
    if (end != s_.npos)
      data = trimmed(data, end + 2 < s_.size() ? s_[end + 2] : ' ', s_[end + 1] == '{');
    if (!data.empty()) add(token::kind::data, std::string{data});
    move_to(at_ + size);
  }

  // Comments and raw blocks are settled here, so the parser never sees them: their inside need not
  // be made of tokens.
  void take_tag(std::size_t begin) {
    const char what = s_[begin + 1];
    at_ = begin + 2;
    const bool has_sign = at_ < s_.size() && (s_[at_] == '-' || s_[at_] == '+');
    if (has_sign) ++at_;
    if (what == '#') return take_comment();
    if (what == '%' && take_raw()) return;
    add(what == '{' ? token::kind::print_begin : token::kind::block_begin, "");
    take_expression(what == '{' ? "}}" : "%}");
  }

  /// Goes behind the end of a tag, which is here. trim_blocks removes exactly one newline, and only
  /// behind blocks and comments: `trims` is false behind {{ }} and behind {% raw %}.
  void leave(char sign, bool trims) {
    at_ += sign == ' ' ? 2 : 3;
    line_starts_ = false;
    if (sign == '-') {
      const auto before = at_;
      skip_space();
      line_starts_ = at_ > before && s_[at_ - 1] == '\n';
    } else if (sign == ' ' && trims && at_ < s_.size() && s_[at_] == '\n') {
      move_to(at_ + 1);
      line_starts_ = true;
    }
  }

  /// Its sign and whether a tag ends here. '+' is a sign of a block's end only: before }} it would
  /// be an operator, as in Jinja's expressions.
  std::optional<char> ends_here(std::string_view end) const {
    if (s_.substr(at_, 2) == end) return ' ';
    const char c = s_[at_];
    if ((c == '-' || (c == '+' && end != "}}")) && s_.substr(at_ + 1, 2) == end) return c;
    return std::nullopt;
  }

  // The first #} ends a comment; comments do not nest. A '-' or '+' directly before it is the sign.
  void take_comment() {
    const auto end = s_.find("#}", at_);
    if (end == s_.npos) failure("a comment does not end, expected #}}");
    const char before = end > at_ ? s_[end - 1] : ' ';
    const char sign = before == '-' || before == '+' ? before : ' ';
    move_to(sign == ' ' ? end : end - 1);
    leave(sign, true);
  }

  /// Text between {% raw %} and {% endraw %}. The tag may also be another one whose name begins
  /// with "raw": then position and line are restored and the block is read as any other. The text
  /// inside goes through the same rules of white space, but its braces mean nothing.
  bool take_raw() {
    const auto start = at_;
    const auto first_line = line_;
    skip_space();
    if (s_.substr(at_, 3) != "raw" || (at_ + 3 < s_.size() && in_name(s_[at_ + 3]))) {
      at_ = start;
      line_ = first_line;
      return false;
    }
    at_ += 3;
    skip_space();
    const auto sign = at_ < s_.size() ? ends_here("%}") : std::nullopt;
    if (!sign || *sign == '+') failure("found something behind 'raw', expected %}}");
    leave(*sign, false);
    for (auto begin = s_.find("{%", at_); begin != s_.npos; begin = s_.find("{%", begin + 2)) {
      auto to = begin + 2;
      const char before = to < s_.size() && (s_[to] == '-' || s_[to] == '+') ? s_[to] : ' ';
      if (before != ' ') ++to;
      while (to < s_.size() && is_space(s_.substr(to, 1))) ++to;
      if (s_.substr(to, 6) != "endraw") continue;
      take_data(begin);
      move_to(to + 6);
      skip_space();
      const auto end = at_ < s_.size() ? ends_here("%}") : std::nullopt;
      if (!end) failure("found something behind 'endraw', expected %}}");
      leave(*end, true);
      return true;
    }
    failure("'raw' does not end, expected {{% endraw %}}");
  }

  // The end of a tag counts only with all brackets closed, so that the two braces which close a
  // dictionary within a dictionary do not end a printing tag.
  void take_expression(std::string_view end) {
    std::string open;  // the brackets that are open, as they close
    for (skip_space(); at_ < s_.size(); skip_space()) {
      if (const auto sign = ends_here(end); sign && open.empty()) {
        add(end == "}}" ? token::kind::print_end : token::kind::block_end, "");
        return leave(*sign, end == "%}");
      }
      const char c = s_[at_];
      if (is_digit(c))
        take_number();
      else if (begins_name(c))
        take_name();
      else if (c == '"' || c == '\'')
        take_string(c);
      else
        take_sign(open);
    }
    failure("a tag does not end, expected {}", end);
  }

  void take_name() {
    const auto first = s_.begin() + static_cast<std::ptrdiff_t>(at_);
    std::string name{first, std::find_if_not(first, s_.end(), in_name)};
    at_ += name.size();
    add(token::kind::name, std::move(name));
  }

  // A point is part of a number only with a digit behind it, since `x.0.name` is a subscript.
  // Jinja's hexadecimal, octal and binary numbers are refused: `0x10` would else be read as 0 and a
  // name.
  void take_number() {
    auto to = at_;
    bool real = false;
    const auto digits = [&](std::size_t from) {
      if (from >= s_.size() || !is_digit(s_[from])) return;
      real = from > at_;
      to = std::min(s_.find_first_not_of("0123456789_", from), s_.size());
    };
    digits(at_);
    if (s_.substr(to, 1) == ".") digits(to + 1);
    if (to < s_.size() && (s_[to] == 'e' || s_[to] == 'E')) {
      const bool has_sign = to + 1 < s_.size() && (s_[to + 1] == '-' || s_[to + 1] == '+');
      digits(to + 1 + has_sign);
    }
    std::string written{s_.substr(at_, to - at_)};
    std::erase(written, '_');
    if (to < s_.size() && in_name(s_[to]))
      failure("found '{}{}', expected a decimal number", written, s_[to]);
    add(real ? token::kind::real : token::kind::integer, std::move(written));
    at_ = to;
  }

  // Signs of two characters come first in the list, so that the longest one wins. Brackets are
  // matched here, because the end of the tag depends on them; the parser can then trust their
  // balance.
  void take_sign(std::string& open) {
    static constexpr std::string_view signs[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                 "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                 ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const auto sign : signs) {
      if (!s_.substr(at_).starts_with(sign)) continue;
      constexpr std::string_view opening = "([{", closing = ")]}";
      if (const auto at = opening.find(sign); at != opening.npos) open += closing[at];
      if (closing.find(sign) != closing.npos) {
        if (open.empty()) failure("found '{}', which closes nothing", sign);
        if (open.back() != sign[0]) failure("found '{}', expected '{}'", sign, open.back());
        open.pop_back();
      }
      add(token::kind::sign, std::string{sign});
      at_ += sign.size();
      return;
    }
    failure("found the character '{}' in a tag, expected an expression",
            s_.substr(at_, character_size(s_, at_)));
  }

  // A backslash takes the next character along, so an escaped quote does not end the string.
  // Strings may run over several lines, as in Jinja.
  void take_string(char quote) {
    const auto first = ++at_;
    auto to = first;
    while (to < s_.size() && s_[to] != quote) to += s_[to] == '\\' ? 2 : 1;
    if (to >= s_.size()) failure("a string does not end");
    auto value = unescaped(s_.substr(first, to - first));
    add(token::kind::string, std::move(value));
    move_to(to + 1);
  }

  // Escapes of Python's unicode_escape codec, through which Jinja sends its strings. An unknown
  // escape keeps its backslash, and a backslash before a newline joins two lines. \N{...} would
  // need the table of character names and is refused.
  std::string unescaped(std::string_view s) const {
    constexpr std::string_view from = "\\'\"abfnrtv", to = "\\'\"\a\b\f\n\r\t\v";
    std::string out;
    for (std::size_t at = 0; at < s.size(); ++at) {
      if (s[at] != '\\') {
        out += s[at];
        continue;
      }
      const char c = s[++at];
      if (const auto known = from.find(c); known != from.npos)
        out += to[known];
      else if (c == 'x' || c == 'u' || c == 'U')
        out += number_escape(s, at);
      else if (c >= '0' && c <= '7')
        out += octal_escape(s, at);
      else if (c == 'N')
        failure("the escape \\N in a string is not supported");
      else if (c != '\n')
        out += std::string{'\\', c};
    }
    return out;
  }

  /// Leaves `at` at the last character of the escape. Surrogates are refused, although a str of
  /// Python may have them: they have no UTF-8, and tokenizers take nothing else.
  std::string number_escape(std::string_view s, std::size_t& at) const {
    const std::size_t digits = s[at] == 'x' ? 2 : s[at] == 'u' ? 4 : 8;
    std::uint32_t n = 0;
    for (std::size_t i = 1; i <= digits; ++i) {
      const char c = at + i < s.size() ? static_cast<char>(s[at + i] | 0x20) : ' ';
      const bool letter = c >= 'a' && c <= 'f';
      if (!letter && !(at + i < s.size() && is_digit(s[at + i])))
        failure("a string has an escape with too few hexadecimal digits");
      n = n * 16 + static_cast<std::uint32_t>(letter ? c - 'a' + 10 : s[at + i] - '0');
    }
    if (n > 0x10FFFF || (n >= 0xD800 && n < 0xE000))
      failure("a string has an escape that is no character");
    at += digits;
    return utf8_of(n);
  }

  static std::string octal_escape(std::string_view s, std::size_t& at) {
    std::uint32_t n = 0;
    std::size_t i = 0;
    for (; i < 3 && at + i < s.size() && s[at + i] >= '0' && s[at + i] <= '7'; ++i)
      n = n * 8 + static_cast<std::uint32_t>(s[at + i] - '0');
    at += i - 1;
    return utf8_of(n);
  }

  const std::string text_;
  const std::string_view s_;
  std::size_t at_ = 0;
  unsigned line_ = 1;
  bool line_starts_ = true;
  std::vector<token> tokens_;
};

}  // namespace

std::vector<token> tokens_of(std::string_view source) {
  return lexer{source}.run();
}

}  // namespace troupe::gpu::jinja
