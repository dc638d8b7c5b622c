#include "gpu/text/bpe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "gpu/model/json_file.hpp"
#include "gpu/text/byte_level.hpp"
#include "messages/untrusted_file.hpp"

namespace troupe::gpu {

namespace {

// As in GPT-2's encoder.py.
constexpr char word_pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::size_t max_file_bytes = 64u << 20;
constexpr std::string_view end_of_text = "<|endoftext|>";

auto malformed(const std::filesystem::path& file, const std::string& text) {
  return refuse(reason::kind::malformed, fmt::format("{} {}", file.string(), text));
}

}  // namespace

expected<bpe> bpe::open(const std::filesystem::path& directory) {
  bpe b;
  if (auto ok = b.read_vocabulary(directory / "vocab.json"); !ok) return refuse(ok.error());
  if (auto ok = b.read_merges(directory / "merges.txt"); !ok) return refuse(ok.error());
  auto words = pattern::compile(word_pattern);
  if (!words)  // PCRE2 was built without Unicode
    return refuse(reason::kind::unavailable, words.error().text);
  b.words_ = std::move(*words);
  return b;
}

expected<void> bpe::read_vocabulary(const std::filesystem::path& file) {
  const auto all = read_json_file(file, max_file_bytes);
  if (!all) return refuse(all.error());
  for (const auto& [token, number] : all->items()) {
    if (!number.is_number_unsigned() ||
        number.get<std::uint64_t>() >= std::numeric_limits<std::uint32_t>::max())
      return malformed(file, fmt::format("has no id for '{}'", token));
    const auto n = number.get<std::uint32_t>();
    const auto bytes =
        token == end_of_text ? std::string{token} : byte_level_bytes(token).value_or(token);
    numbers_[bytes] = n;
    tokens_[n] = bytes;
    size_ = std::max(size_, n + 1);
  }
  for (unsigned b = 0; b < 256; ++b) {
    const auto found = numbers_.find(std::string(1, static_cast<char>(b)));
    if (found == numbers_.end())
      return malformed(file, fmt::format("has no token for the single byte {}", b));
    bytes_.push_back(found->second);
  }
  return {};
}

expected<void> bpe::read_merges(const std::filesystem::path& file) {
  const auto text = read_file(file.string(), max_file_bytes);
  if (!text) return refuse(text.error());
  std::string_view rest{*text};
  for (std::uint32_t at = 1, rank = 0; !rest.empty(); ++at) {
    auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (at == 1 && line.starts_with("#version"))) continue;
    const auto space = line.find(' ');
    const auto first = byte_level_bytes(line.substr(0, space));
    const auto second =
        space == line.npos ? std::nullopt : byte_level_bytes(line.substr(space + 1));
    if (!first || !second) return malformed(file, fmt::format("line {} is not two tokens", at));
    const auto a = numbers_.find(*first), b = numbers_.find(*second),
               sum = numbers_.find(*first + *second);
    if (a == numbers_.end() || b == numbers_.end() || sum == numbers_.end())
      return malformed(file, fmt::format("line {} has tokens that vocab.json does not have", at));
    merges_.add(a->second, b->second, rank++, sum->second);
  }
  return {};
}

std::vector<std::uint32_t> bpe::encode_word(std::string_view word) const {
  std::vector<std::uint32_t> parts;
  for (const char c : word) parts.push_back(bytes_[static_cast<unsigned char>(c)]);
  return merges_.apply(parts);
}

void bpe::encode_plain(std::string_view text, word_cache& known,
                       std::vector<std::uint32_t>& out) const {
  for (const auto& word : words_.split(text)) {
    auto [found, fresh] = known.try_emplace(std::string{word.text});
    if (fresh) found->second = encode_word(word.text);
    out.insert(out.end(), found->second.begin(), found->second.end());
  }
}

std::vector<std::uint32_t> bpe::encode(std::string_view text,
                                       std::span<const text_range> literal) const {
  std::vector<std::uint32_t> out;
  word_cache known;
  const auto special = numbers_.find(std::string{end_of_text});
  std::size_t plain = 0;  // where the text that no token stands for yet begins
  for (std::size_t at = 0; special != numbers_.end();) {
    at = text.find(end_of_text, at);
    if (at == text.npos) break;
    const text_range found{at, at + end_of_text.size()};
    at = found.end;
    if (overlapped(literal, found)) continue;
    encode_plain(text.substr(plain, found.begin - plain), known, out);
    out.push_back(special->second);
    plain = found.end;
  }
  encode_plain(text.substr(plain), known, out);
  return out;
}

std::string bpe::decode(std::span<const std::uint32_t> tokens) const {
  std::string text;
  for (const auto t : tokens)
    if (const auto found = tokens_.find(t); found != tokens_.end()) text += found->second;
  return text;
}

}  // namespace troupe::gpu
