#include "gpu/text/bpe_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "gpu/text/byte_level.hpp"

namespace troupe::gpu {

namespace {

using nlohmann::json;

tl::unexpected<reason> malformed_model(std::string text) {
  return refuse(reason::kind::malformed, std::move(text));
}

/// A merge's two tokens: "a b", or ["a", "b"].
std::pair<std::string, std::string> halves_of(const json& merge) {
  if (merge.is_array() && merge.size() == 2)
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  const auto text = merge.get<std::string>();
  const auto space = text.find(' ');
  return {text.substr(0, space), space == std::string::npos ? "" : text.substr(space + 1)};
}

bool flag_of(const json& object, const char* key) {
  return object.contains(key) && !object[key].is_null() && object[key].get<bool>();
}

}  // namespace

std::size_t character_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t n = first < 0xC2   ? 1
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                        : first < 0xF5 ? 4
                                       : 1;
  if (n > text.size()) return 1;
  for (std::size_t i = 1; i < n; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 1;
  return n;
}

expected<bpe_model> bpe_model::read(const json& model, bool byte_level) {
  bpe_model m;
  m.byte_level_ = byte_level;
  m.byte_fallback_ = flag_of(model, "byte_fallback");
  m.fuse_unknown_ = flag_of(model, "fuse_unk");
  m.whole_words_ = flag_of(model, "ignore_merges");
  for (const auto* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (model.contains(affix) && !model[affix].is_null() && model[affix] != "")
      return malformed_model(fmt::format("model: {} is not supported", affix));
  if (model.contains("dropout") && !model["dropout"].is_null() && model["dropout"] != 0.0)
    return malformed_model("model: dropout is not supported");
  for (const auto& [token, number] : model.at("vocab").items()) {
    const auto n = number.get<std::uint64_t>();
    if (n >= std::numeric_limits<std::uint32_t>::max())
      return malformed_model(fmt::format("model: vocab: '{}' has the number {}", token, n));
    const auto id = static_cast<std::uint32_t>(n);
    const auto bytes = byte_level ? byte_level_bytes(token).value_or(token) : token;
    m.numbers_[bytes] = id;
    m.tokens_[id] = bytes;
    m.size_ = std::max(m.size_, id + 1);
  }
  if (model.contains("unk_token") && model["unk_token"].is_string())
    if (const auto found = m.numbers_.find(model["unk_token"]); found != m.numbers_.end())
      m.unknown_ = found->second;
  for (unsigned b = 0; m.byte_fallback_ && b < 256; ++b) {
    const auto found = m.numbers_.find(fmt::format("<0x{:02X}>", b));
    m.bytes_.push_back(found == m.numbers_.end() ? std::nullopt : std::optional{found->second});
  }
  if (auto ok = m.read_merges(model.at("merges"), byte_level); !ok) return refuse(ok.error());
  return m;
}

expected<void> bpe_model::read_merges(const json& merges, bool byte_level) {
  std::uint32_t rank = 0;
  for (const auto& one : merges) {
    auto [first, second] = halves_of(one);
    if (byte_level) {
      first = byte_level_bytes(first).value_or(first);
      second = byte_level_bytes(second).value_or(second);
    }
    const auto a = numbers_.find(first), b = numbers_.find(second),
               sum = numbers_.find(first + second);
    if (a == numbers_.end() || b == numbers_.end() || sum == numbers_.end())
      return malformed_model(
          fmt::format("model: merges[{}] has tokens that vocab does not have", rank));
    merges_.add(a->second, b->second, rank++, sum->second);
  }
  return {};
}

const std::string* bpe_model::find(std::uint32_t token) const {
  const auto found = tokens_.find(token);
  return found == tokens_.end() ? nullptr : &found->second;
}

/// A character without a token: as bytes if all of them have one, else unknown, else nothing.
void bpe_model::add_unknown(std::string_view character, std::vector<std::uint32_t>& out) const {
  const auto has_token = [&](char c) {
    return byte_fallback_ && bytes_[static_cast<unsigned char>(c)].has_value();
  };
  if (std::all_of(character.begin(), character.end(), has_token)) {
    for (const char c : character) out.push_back(*bytes_[static_cast<unsigned char>(c)]);
  } else if (unknown_ && !(fuse_unknown_ && !out.empty() && out.back() == *unknown_)) {
    out.push_back(*unknown_);
  }
}

std::vector<std::uint32_t> bpe_model::symbols_of(std::string_view word) const {
  std::vector<std::uint32_t> symbols;
  while (!word.empty()) {
    const auto character = word.substr(0, byte_level_ ? 1 : character_bytes(word));
    if (const auto found = numbers_.find(std::string{character}); found != numbers_.end())
      symbols.push_back(found->second);
    else
      add_unknown(character, symbols);
    word.remove_prefix(character.size());
  }
  return symbols;
}

void bpe_model::encode(std::string_view word, std::vector<std::uint32_t>& out) const {
  if (whole_words_)
    if (const auto found = numbers_.find(std::string{word}); found != numbers_.end()) {
      out.push_back(found->second);
      return;
    }
  const auto tokens = merges_.apply(symbols_of(word));
  out.insert(out.end(), tokens.begin(), tokens.end());
}

}  // namespace troupe::gpu
