#include "text/tokens/text_steps.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "messages/base/refuse.hpp"
#include "messages/base/shown.hpp"
#include "text/base/characters.hpp"
#include "text/json/json_members.hpp"

namespace troupe::gpu {

namespace {

using nlohmann::json;

// As in GPT-2's encoder.py: the pattern of ByteLevel unless use_regex is false.
constexpr char byte_level_words[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Canonical decompositions are at most three times as long; a margin for later versions of Unicode.
constexpr std::size_t max_bytes_composed = 4;

tl::unexpected<reason> unsupported(const char* what, const std::string& found) {
  return refuse(reason::kind::invalid, "{}: '{}' is not supported", what, shown(found));
}

/// A text that matches itself.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c)))
      out += '\\';
    out += c;
  }
  return out;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (std::size_t at = 0;;) {
    const auto found = text.find(from, at);
    out += text.substr(at, found - at);
    if (found == text.npos) return out;
    out += to;
    at = found + from.size();
  }
}

/// Sequences may nest; the steps of inner ones run in place, so the result is one flat list.
std::vector<const json*> parts_of(const json& all, const char* list) {
  if (all.is_null()) return {};
  if (all.at("type") != "Sequence") return {&all};
  std::vector<const json*> parts;
  for (const auto& one : all.at(list))
    for (const auto* inner : parts_of(one, list)) parts.push_back(inner);
  return parts;
}

/// Bytes at the beginning of a text that are composed for themselves: ASCII composes with nothing
/// before it. The parts matter for ranges: a part that stays keeps its ranges byte by byte, while
/// one that changes can only be marked as a whole.
std::size_t composed_alone(std::string_view text) {
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  const auto other = std::find_if_not(text.begin(), text.end(), is_ascii);
  // The last one may compose with what follows.
  if (other == text.end()) return text.size();
  if (other - text.begin() > 1) return static_cast<std::size_t>(other - text.begin()) - 1;
  return static_cast<std::size_t>(std::find_if(other, text.end(), is_ascii) - text.begin());
}

}  // namespace

/// A text as a step changes it, with the ranges of the text before that become ranges of it. Both
/// texts are walked once, so a step takes time linear in text and ranges.
class normalizer::changed_text {
 public:
  explicit changed_text(std::vector<text_range> ranges) : before_{std::move(ranges)} {}

  /// The next `bytes` of the text before become this. `moved`: bytes may be in other places, even
  /// if they are as many as before.
  void add(std::string_view text, std::size_t bytes, bool moved = false) {
    const text_range from{at_, at_ + bytes};
    while (next_ < before_.size() && before_[next_].end <= from.begin) ++next_;
    if (text.size() == bytes && !moved)
      keep(from);
    else if (next_ < before_.size() && before_[next_].begin < from.end)
      mark(out_.size(), out_.size() + text.size());
    out_ += text;
    at_ = from.end;
  }
  std::string& text() { return out_; }
  std::vector<text_range>& ranges() { return ranges_; }

 private:
  /// As many bytes as before: what is literal stays so, byte by byte.
  void keep(text_range from) {
    for (auto i = next_; i < before_.size() && before_[i].begin < from.end; ++i)
      mark(std::max(before_[i].begin, from.begin) - from.begin + out_.size(),
           std::min(before_[i].end, from.end) - from.begin + out_.size());
  }
  // Ranges stay sorted, disjoint and not adjacent, as the searches in them expect.
  void mark(std::size_t begin, std::size_t end) {
    if (begin == end) return;
    if (!ranges_.empty() && ranges_.back().end == begin)
      ranges_.back().end = end;
    else
      ranges_.push_back({begin, end});
  }

  std::vector<text_range> before_, ranges_;
  std::size_t next_ = 0;  // the first of before_ that may go on
  std::size_t at_ = 0;    // of the text before
  std::string out_;
};

/// Normalizers of byte pair encodings of Llama, Gemma, Mistral, Qwen and GPT-2. Any other type
/// (NFKC, Lowercase, Precompiled and the like) is refused: to ignore it would give wrong tokens
/// silently.
expected<normalizer> normalizer::read(const json& all) {
  normalizer n;
  for (const auto* one : parts_of(all, "normalizers")) {
    const auto type = one->at("type").get<std::string>();
    step s;
    if (type == "Prepend") {
      s.what = step::kind::prepend;
      s.to = one->at("prepend").get<std::string>();
    } else if (type == "Replace") {
      const auto& from = one->at("pattern");
      s.to = one->at("content").get<std::string>();
      s.what = from.contains("String") ? step::kind::replace : step::kind::replace_pattern;
      s.from = from.contains("String") ? from["String"].get<std::string>() : "";
      if (s.what == step::kind::replace && s.from.empty()) return unsupported("normalizer", "");
      if (s.what == step::kind::replace_pattern) {
        auto p = pattern::compile(from.at("Regex").get<std::string>());
        if (!p) return refuse(p.error());
        s.where = std::move(*p);
      }
    } else if (type != "NFC") {
      return unsupported("normalizer", type);
    }
    n.steps_.push_back(std::move(s));
  }
  return n;
}

void normalizer::apply(const step& s, std::string_view text, changed_text& out) {
  switch (s.what) {
    case step::kind::prepend:
      if (!text.empty()) out.add(s.to, 0);
      return out.add(text, text.size());
    case step::kind::replace:
      while (!text.empty()) {
        const auto plain = text.substr(0, text.find(s.from));
        out.add(plain, plain.size());
        text.remove_prefix(plain.size());
        if (text.empty()) break;
        out.add(s.to, s.from.size());
        text.remove_prefix(s.from.size());
      }
      return;
    case step::kind::replace_pattern:
      return s.where.split(text, [&](pattern::piece p) {
        out.add(p.matched ? std::string_view{s.to} : p.text, p.text.size());
      });
    case step::kind::nfc:
      while (!text.empty()) {
        const auto part = text.substr(0, composed_alone(text));
        const auto normal = composed(part);
        out.add(normal, part.size(), normal != part);
        text.remove_prefix(part.size());
      }
  }
}

/// A literal byte must stay literal through every step, otherwise a client could write a special
/// name that only appears once the text is normalized.
std::string normalizer::apply(std::string_view text, std::vector<text_range>& ranges) const {
  std::string current{text};
  for (const auto& s : steps_) {
    changed_text out{std::move(ranges)};
    apply(s, current, out);
    current = std::move(out.text());
    ranges = std::move(out.ranges());
  }
  return current;
}

std::string normalizer::apply(std::string_view text) const {
  std::vector<text_range> none;
  return apply(text, none);
}

bool normalizer::prepends() const {
  return std::ranges::any_of(steps_, [](const step& s) { return s.what == step::kind::prepend; });
}

/// The steps run one after another, so their factors multiply. A pattern may match any number of
/// bytes and an empty replacement leaves none: both have no bound.
std::size_t normalizer::max_bytes_for_one() const {
  std::size_t max = 1;
  for (const auto& s : steps_) {
    if (s.what == step::kind::replace_pattern) return 0;
    if (s.what == step::kind::replace && s.to.empty()) return 0;
    if (s.what == step::kind::replace)
      max *= std::max<std::size_t>(1, (s.from.size() + s.to.size() - 1) / s.to.size());
    if (s.what == step::kind::nfc) max *= max_bytes_composed;
  }
  return max;
}

/// Types without a counterpart here (Whitespace, Punctuation, UnicodeScripts and others) are
/// refused for the same reason as normalizers: words decide which merges are possible.
expected<pretokenizer> pretokenizer::read(const json& all) {
  pretokenizer p;
  for (const auto* one : parts_of(all, "pretokenizers"))
    if (auto ok = p.add(*one); !ok) return refuse(ok.error());
  return p;
}

expected<void> pretokenizer::add_pattern(const std::string& expression, step s) {
  auto p = pattern::compile(expression);
  if (!p) return refuse(p.error().code, fmt::format("pre_tokenizer: {}", p.error().text));
  s.where = std::move(*p);
  steps_.push_back(std::move(s));
  return {};
}

/// Spaces become a character of their own, with which words begin. `prepend_scheme` replaced
/// `add_prefix_space` in newer files and wins where both are present. With `split` every mark
/// begins a new word, otherwise only the character is exchanged.
expected<void> pretokenizer::add_metaspace(const json& one) {
  step s;
  s.what = step::kind::metaspace;
  s.mark = one.at("replacement").get<std::string>();
  if (s.mark.empty()) return unsupported("pre_tokenizer: Metaspace: replacement", s.mark);
  const auto scheme = one.contains("prepend_scheme") ? one["prepend_scheme"].get<std::string>()
                      : flag_of(one, "add_prefix_space", true) ? "always"
                                                               : "never";
  constexpr std::string_view names[] = {"never", "first", "always"};  // as step::prepend
  const auto* known = std::ranges::find(names, scheme);
  if (known == std::end(names))
    return unsupported("pre_tokenizer: Metaspace: prepend_scheme", scheme);
  s.scheme = static_cast<step::prepend>(known - names);
  steps_.push_back(s);
  s.what = step::kind::split_at_mark;
  if (flag_of(one, "split", true)) steps_.push_back(s);
  return {};
}

/// The names are in the order of step::match. A literal string goes through the same matcher as a
/// pattern, with its signs quoted.
expected<void> pretokenizer::add_split(const json& one) {
  const auto& from = one.at("pattern");
  const auto expression = from.contains("String") ? quoted(from["String"].get<std::string>())
                                                  : from.at("Regex").get<std::string>();
  const auto behavior = one.at("behavior").get<std::string>();
  constexpr std::string_view names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                        "MergedWithNext"};
  const auto* known = std::ranges::find(names, behavior);
  if (known == std::end(names)) return unsupported("pre_tokenizer: Split", behavior);
  return add_pattern(expression, {.becomes = static_cast<step::match>(known - names),
                                  .invert = flag_of(one, "invert")});
}

/// ByteLevel also makes the vocabulary byte-level: its bytes need no step on the text, since the
/// model keeps tokens as the bytes that they stand for.
expected<void> pretokenizer::add(const json& one) {
  const auto type = one.at("type").get<std::string>();
  if (type == "ByteLevel") {
    byte_level_ = true;
    if (flag_of(one, "add_prefix_space", true)) steps_.push_back({step::kind::prefix_space});
    return flag_of(one, "use_regex", true) ? add_pattern(byte_level_words, step{})
                                           : expected<void>{};
  }
  if (type == "Digits")
    return add_pattern(flag_of(one, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)", step{});
  if (type == "Metaspace") return add_metaspace(one);
  return type == "Split" ? add_split(one) : unsupported("pre_tokenizer", type);
}

/// Removed text has no tokens, hence no bound of bytes per token holds.
bool pretokenizer::removes() const {
  return std::ranges::any_of(steps_, [](const step& s) {
    return s.what == step::kind::split && s.becomes == step::match::removed;
  });
}

/// Pieces arrive in order and without gaps, except for removed ones; a word grows over pieces that
/// lie side by side in the same text, so it is extended in place and never copied.
void pretokenizer::split(const step& s, std::string_view text, const word_user& use) {
  using match = step::match;
  std::string_view held;      // the word that the next piece may belong to
  bool held_matched = false;  // its last piece was a match
  s.where.split(text, [&](pattern::piece p) {
    const bool matched = p.matched != s.invert;
    if (s.becomes == match::removed && matched) return;
    // A match joins no other match, except where matches side by side are one word.
    const bool joins = (s.becomes == match::contiguous && matched == held_matched) ||
                       (s.becomes == match::with_previous && matched && !held_matched) ||
                       (s.becomes == match::with_next && !matched && held_matched);
    if (joins && !held.empty()) {
      held = {held.data(), held.size() + p.text.size()};
    } else {
      if (!held.empty()) use(held);
      held = p.text;
    }
    held_matched = matched;
  });
  if (!held.empty()) use(held);
}

/// Each word goes through all later steps before the next one is made: memory stays that of one
/// word per step, and the depth of the recursion is the number of steps. Only the first word of a
/// prompt still begins it, which the scheme `first` of Metaspace asks for.
void pretokenizer::apply_from(std::size_t index, std::string_view text, bool begins,
                              const word_user& use) const {
  if (text.empty()) return;
  if (index == steps_.size()) return use(text);
  const auto& s = steps_[index];
  const auto go_on = [&](std::string_view word) {
    apply_from(index + 1, word, begins, use);
    begins = false;
  };
  switch (s.what) {
    case step::kind::prefix_space:
      return go_on(text.starts_with(' ') ? std::string{text} : fmt::format(" {}", text));
    case step::kind::metaspace: {
      auto marked = replaced(text, " ", s.mark);
      const bool prepends =
          s.scheme == step::prepend::always || (s.scheme == step::prepend::first && begins);
      if (prepends && !marked.starts_with(s.mark)) marked = s.mark + marked;
      return go_on(marked);
    }
    case step::kind::split_at_mark:
      for (std::size_t at = 0; at < text.size();) {
        const auto end = std::min(text.find(s.mark, at + 1), text.size());
        go_on(text.substr(at, end - at));
        at = end;
      }
      return;
    case step::kind::split:
      return split(s, text, go_on);
  }
}

void pretokenizer::apply(std::string_view text, bool begins, const word_user& use) const {
  apply_from(0, text, begins, use);
}

}  // namespace troupe::gpu
