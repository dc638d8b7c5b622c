#include "text/tokens/bpe_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "messages/base/find_in.hpp"
#include "messages/base/refuse.hpp"
#include "text/base/characters.hpp"
#include "text/json/json_members.hpp"
#include "text/tokens/byte_level.hpp"

namespace troupe::gpu {

namespace {

using nlohmann::json;

/// A merge's two tokens: "a b", or ["a", "b"].
std::pair<std::string, std::string> halves_of(const json& merge) {
  if (merge.is_array() && merge.size() == 2)
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  const auto text = merge.get<std::string>();
  const auto space = text.find(' ');
  return {text.substr(0, space), space == std::string::npos ? "" : text.substr(space + 1)};
}

}  // namespace

/// Affixes of subwords belong to other encodings, and dropout makes encodings random: both are
/// refused. A token whose characters stand for no bytes keeps its text, as added tokens in a
/// vocabulary do.
expected<bpe_model> bpe_model::read(const json& model, bool byte_level) {
  bpe_model m;
  m.byte_level_ = byte_level;
  m.byte_fallback_ = flag_of(model, "byte_fallback");
  m.fuse_unknown_ = flag_of(model, "fuse_unk");
  m.whole_words_ = flag_of(model, "ignore_merges");
  for (const auto* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const auto& found = member(model, affix); !found.is_null() && found != "")
      return refuse(reason::kind::malformed, "model: {} is not supported", affix);
  if (const auto& dropout = member(model, "dropout"); !dropout.is_null() && dropout != 0.0)
    return refuse(reason::kind::malformed, "model: dropout is not supported");
  for (const auto& [token, number] : model.at("vocab").items()) {
    const auto n = number.get<std::uint64_t>();
    if (n >= std::numeric_limits<std::uint32_t>::max())
      return refuse(reason::kind::malformed, "model: vocab: '{}' has the number {}", token, n);
    const auto id = static_cast<std::uint32_t>(n);
    const auto bytes = byte_level ? byte_level_bytes(token).value_or(token) : token;
    m.numbers_[bytes] = id;
    m.tokens_[id] = bytes;
    m.size_ = std::max(m.size_, id + 1);
  }
  if (const auto& unknown = member(model, "unk_token"); unknown.is_string())
    m.unknown_ = m.number_as_written(unknown);
  for (unsigned b = 0; m.byte_fallback_ && b < 256; ++b)
    m.bytes_.push_back(m.number_as_written(fmt::format("<0x{:02X}>", b)));
  if (auto ok = m.read_merges(model.at("merges"), byte_level); !ok) return refuse(ok.error());
  return m;
}

/// The place of a merge in the list is its rank. Both halves and their sum must be tokens: a merge
/// to no token could not be applied.
expected<void> bpe_model::read_merges(const json& merges, bool byte_level) {
  std::uint32_t rank = 0;
  for (const auto& one : merges) {
    auto [first, second] = halves_of(one);
    if (byte_level) {
      first = byte_level_bytes(first).value_or(first);
      second = byte_level_bytes(second).value_or(second);
    }
    const auto *a = find_in(numbers_, first), *b = find_in(numbers_, second),
               *sum = find_in(numbers_, first + second);
    if (!a || !b || !sum)
      return refuse(reason::kind::malformed,
                    "model: merges[{}] has tokens that vocab does not have", rank);
    merges_.add(*a, *b, rank++, *sum);
  }
  return {};
}

const std::string* bpe_model::find(std::uint32_t token) const {
  return find_in(tokens_, token);
}

/// A character without a token: as bytes if all of them have one, else unknown, else nothing.
void bpe_model::add_unknown(std::string_view character, std::vector<std::uint32_t>& out) const {
  const auto has_token = [&](char c) {
    return byte_fallback_ && bytes_[static_cast<unsigned char>(c)].has_value();
  };
  if (std::ranges::all_of(character, has_token)) {
    for (const char c : character) out.push_back(*bytes_[static_cast<unsigned char>(c)]);
  } else if (unknown_ && !(fuse_unknown_ && !out.empty() && out.back() == *unknown_)) {
    out.push_back(*unknown_);
  }
}

/// The tokens before any merge: one for each byte of a byte-level vocabulary, else one for each
/// character.
std::vector<std::uint32_t> bpe_model::symbols_of(std::string_view word) const {
  std::vector<std::uint32_t> symbols;
  while (!word.empty()) {
    const auto character = word.substr(0, byte_level_ ? 1 : character_bytes(word));
    if (const auto number = number_as_written(std::string{character}))
      symbols.push_back(*number);
    else
      add_unknown(character, symbols);
    word.remove_prefix(character.size());
  }
  return symbols;
}

std::optional<std::uint32_t> bpe_model::number_of(const std::string& token) const {
  return number_as_written(byte_level_ ? byte_level_bytes(token).value_or(token) : token);
}

std::optional<std::uint32_t> bpe_model::number_as_written(const std::string& bytes) const {
  const auto* number = find_in(numbers_, bytes);
  return number ? std::optional{*number} : std::nullopt;
}

/// Every byte becomes at least one token if it has one of its own.
bool bpe_model::keeps_all_text() const {
  if (byte_fallback_)
    return std::ranges::all_of(bytes_, [](const auto& b) { return b.has_value(); });
  for (unsigned b = 0; byte_level_ && b < 256; ++b)
    if (!numbers_.contains(std::string(1, static_cast<char>(b)))) return false;
  return byte_level_;
}

std::size_t bpe_model::longest_token_bytes() const {
  std::size_t longest = 1;
  for (const auto& [text, number] : numbers_) longest = std::max(longest, text.size());
  return longest;
}

/// With ignore_merges (Llama 3) a word that is a token is that token, even where the merges would
/// not lead to it.
void bpe_model::encode(std::string_view word, std::vector<std::uint32_t>& out) const {
  if (whole_words_)
    if (const auto number = number_as_written(std::string{word})) return out.push_back(*number);
  const auto tokens = merges_.apply(symbols_of(word));
  out.insert(out.end(), tokens.begin(), tokens.end());
}

}  // namespace troupe::gpu
