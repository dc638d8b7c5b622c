#include "text/tokens/json_tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "messages/base/find_in.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/shown.hpp"
#include "text/json/json_members.hpp"
#include "text/tokens/added_tokens.hpp"
#include "text/tokens/bpe_model.hpp"
#include "text/tokens/byte_level.hpp"
#include "text/tokens/text_steps.hpp"

namespace troupe::gpu {

namespace {

using nlohmann::json;

/// How tokens become text.
struct token_decoding {
  std::string space;        // the character that stands for one; empty: none
  bool bytes = false;       // <0x41> is a byte
  bool byte_level = false;  // characters of added tokens stand for bytes, too
  bool strips_first_space = false;
  bool drops_first_spaces = false;  // all of the first token's
};

using token_list = std::vector<std::uint32_t>;

/// Constant once read: encode() and text_of() may run on several threads, since what an encoding
/// remembers is local to its call.
class json_tokenizer final : public tokenizer {
 public:
  static expected<std::unique_ptr<tokenizer>> read(const tokenizer_document& d);

  token_list encode(std::string_view text, std::span<const text_range> literal) const override;
  token_list encode_prompt(std::string_view text,
                           std::span<const text_range> literal) const override;
  std::string text_of(std::uint32_t token, bool first) const override;
  std::string written(std::uint32_t token) const override;
  std::optional<std::uint32_t> special(std::string_view name) const override;
  std::uint32_t size() const override { return model_.size(); }
  std::size_t longest_token_bytes() const override { return longest_token_bytes_; }

 private:
  /// Words that have been encoded, and the tokens so far.
  struct encoding {
    std::unordered_map<std::string, token_list> known;
    token_list out;
  };

  expected<void> read_added(const json& all);
  expected<void> read_processing(const json& one);
  expected<void> read_decoding(const json& one);
  std::string decoded(std::string token, bool first) const;
  std::size_t find_longest() const;
  void encode_part(std::string_view text, std::size_t begin, std::span<const text_range> literal,
                   encoding& e) const;
  void encode_plain(std::string_view text, bool begins, encoding& e) const;

  normalizer normalizer_;
  pretokenizer words_;
  bpe_model model_;
  std::vector<added_token> added_;
  token_finder in_text_, in_normalized_;  // added tokens, by where they are found
  std::unordered_map<std::uint32_t, const added_token*> by_number_;
  token_list before_, after_;  // of a prompt
  token_decoding decoding_;
  bool splits_special_ = false;
  std::size_t longest_token_bytes_ = 0;
};

tl::unexpected<reason> not_supported(const std::string& what) {
  return refuse(reason::kind::invalid, "{} is not supported", what);
}

bool has_flag(const json& one, const char* key) {
  return one.contains(key) && one[key].get<bool>();
}

/// Special tokens enter the finders first, so of equal names the special one counts, as in
/// tokenizers. Names that are `normalized` are looked for in the normalized text and are normalized
/// themselves. A missing flag has the default of the library: normal tokens are normalized, special
/// ones are not.
expected<void> json_tokenizer::read_added(const json& all) {
  for (const auto& one : all) {
    added_token t{one.at("content").get<std::string>(),
                  one.at("id").get<std::uint32_t>(),
                  has_flag(one, "special"),
                  has_flag(one, "lstrip"),
                  has_flag(one, "rstrip"),
                  has_flag(one, "single_word")};
    t.normalized = one.contains("normalized") ? has_flag(one, "normalized") : !t.special;
    if (t.content.empty()) continue;
    if (const auto number = model_.number_of(t.content); number && *number != t.number)
      return refuse(reason::kind::invalid,
                    "added_tokens: '{}' has the number {}, the vocabulary has {}", shown(t.content),
                    t.number, *number);
    added_.push_back(std::move(t));
  }
  for (const bool special : {true, false})
    for (const auto& t : added_)
      if (t.special == special && t.normalized)
        in_normalized_.add(normalizer_.apply(t.content), t);
      else if (t.special == special)
        in_text_.add(t.content, t);
  for (const auto& t : added_) by_number_.try_emplace(t.number, &t);
  return {};
}

/// The tokens around a prompt. Each step of a sequence puts its own around those before. ByteLevel
/// changes only offsets, which are not used here. Templates for pairs of texts are ignored;
/// BertProcessing and RobertaProcessing, which belong to encoders, are refused.
expected<void> json_tokenizer::read_processing(const json& one) {
  if (one.is_null()) return {};
  const auto type = one.at("type").get<std::string>();
  if (type == "ByteLevel") return {};
  if (type == "Sequence") {
    for (const auto& inner : one.at("processors"))
      if (auto ok = read_processing(inner); !ok) return ok;
    return {};
  }
  if (type != "TemplateProcessing") return not_supported("post_processor: '" + type + "'");
  int texts = 0;
  token_list before;
  for (const auto& part : one.at("single")) {
    if (part.contains("Sequence")) {
      texts += part["Sequence"].at("id") == "A" ? 1 : 2;
      continue;
    }
    const auto name = part.at("SpecialToken").at("id").get<std::string>();
    for (const auto& id : one.at("special_tokens").at(name).at("ids"))
      (texts > 0 ? after_ : before).push_back(id.get<std::uint32_t>());
  }
  if (texts != 1) return not_supported("post_processor: a template without one text, A,");
  before_.insert(before_.begin(), before.begin(), before.end());
  return {};
}

/// Decoders reduce to a few facts, because tokens are decoded one at a time while an answer
/// streams: a decoder that needs the whole list (WordPiece, CTC) is refused. The vocabulary of
/// ByteLevel is kept as bytes, but added tokens are not. Fuse only joins texts.
expected<void> json_tokenizer::read_decoding(const json& one) {
  if (one.is_null()) return {};
  const auto type = one.at("type").get<std::string>();
  if (type == "Sequence") {
    for (const auto& inner : one.at("decoders"))
      if (auto ok = read_decoding(inner); !ok) return ok;
  } else if (type == "Replace" && member(one.at("pattern"), "String").is_string() &&
             one.at("content") == " ") {
    decoding_.space = one["pattern"]["String"].get<std::string>();
  } else if (type == "Metaspace") {
    decoding_.space = one.at("replacement").get<std::string>();
    decoding_.drops_first_spaces = one.contains("prepend_scheme")
                                       ? one["prepend_scheme"] != "never"
                                       : member(one, "add_prefix_space") != false;
  } else if (type == "ByteFallback") {
    decoding_.bytes = true;
  } else if (type == "Strip") {
    decoding_.strips_first_space = one.at("content") == " " && one.at("start") == 1;
  } else if (type == "ByteLevel") {
    decoding_.byte_level = true;
  } else if (type != "Fuse") {
    return not_supported("decoder: '" + type + "'");
  }
  return {};
}

/// Steps first, since the model must know whether its vocabulary is byte-level, and added tokens
/// after the model, whose numbers they must not contradict.
expected<std::unique_ptr<tokenizer>> json_tokenizer::read(const tokenizer_document& d) {
  const auto& all = d.content;
  auto t = std::make_unique<json_tokenizer>();
  const auto& model = all.at("model");
  // Old files have no type; their encoding has merges.
  if (!model.contains("merges") || (model.contains("type") && model["type"] != "BPE"))
    return not_supported("model: a type other than BPE");
  auto normal = normalizer::read(member(all, "normalizer"));
  if (!normal) return refuse(normal.error());
  auto words = pretokenizer::read(member(all, "pre_tokenizer"));
  if (!words) return refuse(words.error());
  auto encoding = bpe_model::read(model, words->byte_level());
  if (!encoding) return refuse(encoding.error());
  t->normalizer_ = std::move(*normal);
  t->words_ = std::move(*words);
  t->model_ = std::move(*encoding);
  auto ok = t->read_added(member(all, "added_tokens"));
  if (ok) ok = t->read_processing(member(all, "post_processor"));
  if (ok) ok = t->read_decoding(member(all, "decoder"));
  if (!ok) return refuse(ok.error());
  if (d.before) t->before_ = *d.before;
  if (d.after) t->after_ = *d.after;
  t->splits_special_ = d.splits_special;
  t->longest_token_bytes_ = t->find_longest();
  return t;
}

/// 0 where a token may stand for any number of bytes. The bound lets a server refuse a text by its
/// size before it spends time on encoding it.
std::size_t json_tokenizer::find_longest() const {
  const auto shrinks = normalizer_.max_bytes_for_one();
  if (shrinks == 0 || words_.removes() || !model_.keeps_all_text()) return 0;
  auto longest = model_.longest_token_bytes() * shrinks;
  for (const auto& t : added_) {
    if (t.strips_left || t.strips_right) return 0;
    longest = std::max(
        longest, t.normalized ? normalizer_.apply(t.content).size() * shrinks : t.content.size());
  }
  return longest;
}

/// Words repeat in a text; the merges of each run once per call of encode(). The memory of the
/// words is at most a small multiple of the text and ends with the call, so hostile texts cannot
/// fill a cache that outlives them.
void json_tokenizer::encode_plain(std::string_view text, bool begins, encoding& e) const {
  constexpr std::size_t max_known = 256;  // a longer word hardly comes again
  words_.apply(text, begins, [&](std::string_view word) {
    if (word.size() > max_known) return model_.encode(word, e.out);
    const auto [found, fresh] = e.known.try_emplace(std::string{word});
    if (fresh) model_.encode(word, found->second);
    e.out.insert(e.out.end(), found->second.begin(), found->second.end());
  });
}

/// A part of a text, from `begin` on, in which there is no token of in_text_. Ranges matter after
/// normalizing only if a special name is looked for there; else they are not cut.
void json_tokenizer::encode_part(std::string_view text, std::size_t begin,
                                 std::span<const text_range> literal, encoding& e) const {
  std::vector<text_range> ranges;  // literal in this part
  if (in_normalized_.has_special())
    for (const auto& r : literal)
      if (r.end > begin && r.begin < begin + text.size())
        ranges.push_back(
            {std::max(r.begin, begin) - begin, std::min(r.end, begin + text.size()) - begin});
  std::string changed;
  if (!normalizer_.empty()) {
    changed = normalizer_.apply(text, ranges);
    text = changed;
  }
  in_normalized_.split(text, ranges, [&](const token_finder::part& p) {
    if (p.token)
      e.out.push_back(p.token->number);
    else
      encode_plain(p.text, begin == 0 && p.begin == 0, e);
  });
}

/// With split_special_tokens the whole text counts as literal, so no special name is found in it.
token_list json_tokenizer::encode(std::string_view text,
                                  std::span<const text_range> literal) const {
  const text_range whole{0, text.size()};
  if (splits_special_) literal = {&whole, 1};
  encoding e;
  in_text_.split(text, literal, [&](const token_finder::part& p) {
    if (p.token)
      e.out.push_back(p.token->number);
    else
      encode_part(p.text, p.begin, literal, e);
  });
  return std::move(e.out);
}

token_list json_tokenizer::encode_prompt(std::string_view text,
                                         std::span<const text_range> literal) const {
  auto all = before_;
  const auto inner = encode(text, literal);
  all.insert(all.end(), inner.begin(), inner.end());
  all.insert(all.end(), after_.begin(), after_.end());
  return all;
}

/// A byte token may be a part of a character: utf8_stream joins them.
std::string json_tokenizer::decoded(std::string text, bool first) const {
  unsigned byte = 0;
  char rest = 0;
  if (decoding_.bytes && text.size() == 6 &&
      std::sscanf(text.c_str(), "<0x%2X%c", &byte, &rest) == 2 && rest == '>')
    return std::string(1, static_cast<char>(byte));
  const std::string space{first && decoding_.drops_first_spaces ? "" : " "};
  if (!decoding_.space.empty())
    for (std::size_t at = 0; (at = text.find(decoding_.space, at)) != text.npos; at += space.size())
      text.replace(at, decoding_.space.size(), space);
  if (first && decoding_.strips_first_space && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

/// A special token adds no text, or a client would see the signs of turns in answers. Other added
/// tokens pass through the decoder like those of the vocabulary.
std::string json_tokenizer::text_of(std::uint32_t token, bool first) const {
  if (const auto* added = find_in(by_number_, token)) {
    const auto& name = (*added)->content;
    if ((*added)->special) return {};
    return decoded(decoding_.byte_level ? byte_level_bytes(name).value_or(name) : name, first);
  }
  const auto* written = model_.find(token);
  return written ? decoded(*written, first) : std::string{};
}

std::string json_tokenizer::written(std::uint32_t token) const {
  const auto* added = find_in(by_number_, token);
  return added && (*added)->special ? (*added)->content : text_of(token, false);
}

std::optional<std::uint32_t> json_tokenizer::special(std::string_view name) const {
  for (const auto& t : added_)
    if (t.special && t.content == name) return t.number;
  return std::nullopt;
}

}  // namespace

expected<std::unique_ptr<tokenizer>> make_json_tokenizer(const tokenizer_document& d) {
  try {
    auto t = json_tokenizer::read(d);
    if (!t) return refuse(t.error().code, fmt::format("{}: {}", d.file.string(), t.error().text));
    return t;
  } catch (const json::exception& e) {
    return refuse(reason::kind::malformed, "{}: {}", d.file.string(), e.what());
  }
}

}  // namespace troupe::gpu
