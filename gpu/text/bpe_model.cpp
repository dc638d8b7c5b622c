#include "gpu/text/bpe_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <queue>

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
    merges_.try_emplace(static_cast<std::uint64_t>(a->second) << 32 | b->second,
                        merge{rank++, sum->second});
  }
  return {};
}

const bpe_model::merge* bpe_model::find_merge(std::uint32_t first, std::uint32_t second) const {
  const auto found = merges_.find(static_cast<std::uint64_t>(first) << 32 | second);
  return found == merges_.end() ? nullptr : &found->second;
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
  std::vector<symbol> symbols;
  for (const auto token : symbols_of(word))
    symbols.push_back({token, symbols.size() - 1, symbols.size() + 1});
  if (symbols.empty()) return;
  symbols.back().after = none;

  // The merge of lowest rank first, of several the leftmost. An entry whose tokens have changed
  // since is passed over.
  struct possible {
    std::uint32_t rank = 0;
    std::size_t at = 0;
    std::uint32_t first = 0, second = 0, token = 0;
    bool operator<(const possible& other) const {  // the greatest comes first
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  std::priority_queue<possible> queue;
  const auto consider = [&](std::size_t at) {
    if (at == none || symbols[at].after == none) return;
    const auto first = symbols[at].token, second = symbols[symbols[at].after].token;
    if (const auto* m = find_merge(first, second))
      queue.push({m->rank, at, first, second, m->token});
  };
  constexpr std::uint32_t gone = std::numeric_limits<std::uint32_t>::max();
  for (std::size_t i = 0; i < symbols.size(); ++i) consider(i);
  while (!queue.empty()) {
    const auto best = queue.top();
    queue.pop();
    auto& s = symbols[best.at];
    if (s.token != best.first || s.after == none || symbols[s.after].token != best.second) continue;
    auto& merged = symbols[s.after];
    s.token = best.token;
    merged.token = gone;
    s.after = merged.after;
    if (s.after != none) symbols[s.after].before = best.at;
    consider(s.before);
    consider(best.at);
  }
  for (std::size_t i = 0; i != none; i = symbols[i].after) out.push_back(symbols[i].token);
}

}  // namespace troupe::gpu
