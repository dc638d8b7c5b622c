#include "gpu/text/json_tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "gpu/model/json_file.hpp"
#include "gpu/text/bpe_model.hpp"
#include "gpu/text/text_steps.hpp"

namespace troupe::gpu {

namespace {

using nlohmann::json;

/// A token besides the byte pair encoding's.
struct added_token {
  std::string content;
  std::uint32_t number = 0;
  bool special = false, strips_left = false, strips_right = false;
};

/// How tokens become text.
struct token_decoding {
  std::string space;   // the character that stands for one; empty: none
  bool bytes = false;  // <0x41> is a byte
  bool strips_first_space = false;
};

class json_tokenizer final : public tokenizer {
 public:
  static expected<std::unique_ptr<tokenizer>> read(const json& all);

  std::vector<std::uint32_t> encode(std::string_view text,
                                    std::span<const text_range> literal) const override;
  std::vector<std::uint32_t> encode_prompt(std::string_view text) const override;
  std::string text_of(std::uint32_t token, bool first) const override;
  std::string written(std::uint32_t token) const override;
  std::optional<std::uint32_t> special(std::string_view name) const override;
  std::uint32_t size() const override { return model_.size(); }

 private:
  expected<void> read_added(const json& all);
  expected<void> read_processing(const json& one);
  expected<void> read_decoding(const json& one);
  const added_token* added_at(std::string_view text) const;
  void encode_plain(std::string_view text, bool begins, std::vector<std::uint32_t>& out) const;

  normalizer normalizer_;
  pretokenizer words_;
  bpe_model model_;
  std::vector<added_token> added_;                         // longest first
  std::map<char, std::vector<const added_token*>> begin_;  // by their first byte
  std::map<std::uint32_t, const added_token*> by_number_;
  std::vector<std::uint32_t> before_, after_;  // of a prompt
  token_decoding decoding_;
};

tl::unexpected<reason> not_supported(const std::string& what) {
  return refuse(reason::kind::invalid, fmt::format("{} is not supported", what));
}

bool has_flag(const json& one, const char* key) {
  return one.contains(key) && one[key].get<bool>();
}

const json& member(const json& all, const char* key) {
  static const json nothing;
  return all.contains(key) ? all[key] : nothing;
}

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

expected<void> json_tokenizer::read_added(const json& all) {
  for (const auto& one : all) {
    if (has_flag(one, "single_word")) return not_supported("added_tokens: single_word");
    added_token t{one.at("content").get<std::string>(), one.at("id").get<std::uint32_t>(),
                  has_flag(one, "special"), has_flag(one, "lstrip"), has_flag(one, "rstrip")};
    if (!t.content.empty()) added_.push_back(std::move(t));
  }
  std::stable_sort(added_.begin(), added_.end(), [](const auto& a, const auto& b) {
    return a.content.size() > b.content.size();
  });
  for (const auto& t : added_) {
    begin_[t.content[0]].push_back(&t);
    by_number_.emplace(t.number, &t);
  }
  return {};
}

/// The tokens around a prompt.
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
  bool seen = false;
  for (const auto& part : one.at("single")) {
    if (part.contains("Sequence")) {
      seen = true;
      continue;
    }
    const auto name = part.at("SpecialToken").at("id").get<std::string>();
    for (const auto& id : one.at("special_tokens").at(name).at("ids"))
      (seen ? after_ : before_).push_back(id.get<std::uint32_t>());
  }
  return {};
}

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
    decoding_.strips_first_space = one.contains("prepend_scheme")
                                       ? one["prepend_scheme"] != "never"
                                       : member(one, "add_prefix_space") != false;
  } else if (type == "ByteFallback") {
    decoding_.bytes = true;
  } else if (type == "Strip") {
    decoding_.strips_first_space = one.at("content") == " " && one.at("start") == 1;
  } else if (type != "ByteLevel" && type != "Fuse") {
    return not_supported("decoder: '" + type + "'");
  }
  return {};
}

expected<std::unique_ptr<tokenizer>> json_tokenizer::read(const json& all) {
  auto t = std::make_unique<json_tokenizer>();
  const auto& model = all.at("model");
  // Old files do not say; their encoding has merges.
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
  return t;
}

const added_token* json_tokenizer::added_at(std::string_view text) const {
  const auto found = begin_.find(text[0]);
  if (found == begin_.end()) return nullptr;
  for (const auto* t : found->second)
    if (text.starts_with(t->content)) return t;
  return nullptr;
}

void json_tokenizer::encode_plain(std::string_view text, bool begins,
                                  std::vector<std::uint32_t>& out) const {
  if (text.empty()) return;
  std::map<std::string, std::vector<std::uint32_t>> known;
  for (const auto& word : words_.apply(normalizer_.apply(std::string{text}), begins)) {
    const auto [found, fresh] = known.try_emplace(word);
    if (fresh) model_.encode(word, found->second);
    out.insert(out.end(), found->second.begin(), found->second.end());
  }
}

std::vector<std::uint32_t> json_tokenizer::encode(std::string_view text,
                                                  std::span<const text_range> literal) const {
  std::vector<std::uint32_t> out;
  std::size_t plain = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto* t = added_at(text.substr(at));
    if (!t) {
      ++at;
      continue;
    }
    if (t->special && overlapped(literal, {at, at + t->content.size()})) {
      at += t->content.size();
      continue;
    }
    auto end = at;
    while (t->strips_left && end > plain && is_space(text[end - 1])) --end;
    encode_plain(text.substr(plain, end - plain), plain == 0, out);
    out.push_back(t->number);
    at += t->content.size();
    while (t->strips_right && at < text.size() && is_space(text[at])) ++at;
    plain = at;
  }
  encode_plain(text.substr(plain), plain == 0, out);
  return out;
}

std::vector<std::uint32_t> json_tokenizer::encode_prompt(std::string_view text) const {
  auto all = before_;
  const auto inner = encode(text, {});
  all.insert(all.end(), inner.begin(), inner.end());
  all.insert(all.end(), after_.begin(), after_.end());
  return all;
}

std::string json_tokenizer::text_of(std::uint32_t token, bool first) const {
  if (const auto found = by_number_.find(token); found != by_number_.end())
    return found->second->special ? std::string{} : found->second->content;
  const auto* written = model_.find(token);
  if (!written) return {};
  auto text = *written;
  unsigned byte = 0;
  char rest = 0;
  if (decoding_.bytes && text.size() == 6 &&
      std::sscanf(text.c_str(), "<0x%2X%c", &byte, &rest) == 2 && rest == '>')
    return std::string(1, static_cast<char>(byte));
  if (!decoding_.space.empty())
    for (std::size_t at = 0; (at = text.find(decoding_.space, at)) != text.npos; ++at)
      text.replace(at, decoding_.space.size(), 1, ' ');
  if (first && decoding_.strips_first_space && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::string json_tokenizer::written(std::uint32_t token) const {
  const auto found = by_number_.find(token);
  return found == by_number_.end() ? text_of(token, false) : found->second->content;
}

std::optional<std::uint32_t> json_tokenizer::special(std::string_view name) const {
  for (const auto& t : added_)
    if (t.special && t.content == name) return t.number;
  return std::nullopt;
}

}  // namespace

expected<std::unique_ptr<tokenizer>> open_json_tokenizer(const std::filesystem::path& file) {
  constexpr std::size_t limit_bytes = 64u << 20;
  const auto all = read_json_file(file, limit_bytes);
  if (!all) return refuse(all.error());
  try {
    auto t = json_tokenizer::read(*all);
    if (!t) return refuse(t.error().code, fmt::format("{}: {}", file.string(), t.error().text));
    return t;
  } catch (const json::exception& e) {
    return refuse(reason::kind::malformed, fmt::format("{}: {}", file.string(), e.what()));
  }
}

}  // namespace troupe::gpu
