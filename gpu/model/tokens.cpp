#include "gpu/model/tokens.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "messages/base/random.hpp"
#include "messages/base/refuse.hpp"
#include "text/tokens/open_tokenizer.hpp"
#include "text/tokens/tokenizer.hpp"

namespace troupe::gpu {

namespace {

constexpr std::size_t max_text_bytes = 1u << 30;  // that is encoded at once, in memory

// A hash rather than a stream of random numbers: any sample can be computed without those before
// it.
std::uint64_t mix(std::uint64_t seed, std::uint64_t value) {
  return random_source{seed ^ (value + 0x9e3779b97f4a7c15ull) * 0xd1342543de82ef95ull}.next();
}

template <class... T>
tl::unexpected<reason> bad_data(const untrusted_file& f, fmt::format_string<T...> text,
                                T&&... values) {
  return refuse(reason::kind::invalid, "{}: {}", f.path(),
                fmt::format(text, std::forward<T>(values)...));
}

/// Where a file's tokens are.
struct token_place {
  std::uint64_t begin = 0, bytes = 0;
  unsigned width = 2;
};

// The first number of llm.c's files, and what kind of file it is.
struct llm_c_kind {
  std::uint32_t magic = 0, version = 0;
  unsigned width = 0;  // 0: not training data
  const char* what = "";
};
constexpr llm_c_kind llm_c_kinds[] = {
    {20240520, 1, 2, "16-bit tokens"},     {20240801, 7, 4, "32-bit tokens"},
    {20240522, 0, 0, "an evaluation"},     {20240326, 0, 0, "a model"},
    {20240327, 0, 0, "a debug state"},     {20240328, 0, 0, "a tokenizer"},
    {20240527, 0, 0, "a training's state"}};

/// By the header: 256 numbers of 32 bits, of which the first are magic, version and the count of
/// tokens.
expected<token_place> place_in_llm_c(const untrusted_file& f, const llm_c_kind& k) {
  constexpr std::uint64_t header_bytes = 1024;
  if (k.width == 0)
    return bad_data(f, "found llm.c's magic {}, {}, expected training data (20240520 or 20240801)",
                    k.magic, k.what);
  if (f.size() < header_bytes)
    return bad_data(f, "found llm.c's magic {} and {} bytes, expected a header of {}", k.magic,
                    f.size(), header_bytes);
  std::uint32_t header[3] = {};
  if (auto ok = f.read(0, std::as_writable_bytes(std::span{header})); !ok)
    return refuse(ok.error());
  if (header[1] != k.version)
    return bad_data(f, "found llm.c's magic {} with version {}, expected version {}", k.magic,
                    header[1], k.version);
  const token_place p{header_bytes, f.size() - header_bytes, k.width};
  if (p.bytes != std::uint64_t{header[2]} * k.width)
    return bad_data(f, "found {} bytes behind llm.c's header, expected {}: it counts {} {}",
                    p.bytes, std::uint64_t{header[2]} * k.width, header[2], k.what);
  return p;
}

/// 32-bit numbers below 2^18 that are read as 16-bit ones: every second one is below 4.
expected<bool> looks_like_32_bits(const untrusted_file& f) {
  constexpr std::uint64_t fewest = 32, max = 1024;  // pairs
  std::vector<std::uint16_t> words(2 * std::min(max, f.size() / 4));
  if (words.size() < 2 * fewest) return false;
  if (auto ok = f.read(0, std::as_writable_bytes(std::span{words})); !ok) return refuse(ok.error());
  bool larger = false;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    if (words[i + 1] > 3) return false;
    larger = larger || words[i] > 3;
  }
  return larger;
}

// A file that is read with the wrong width trains on noise without any error, so a header wins over
// the extension, and 16-bit files are tested for the pattern of 32-bit ones.
expected<token_place> place_of_tokens(const untrusted_file& f, unsigned width) {
  std::uint32_t magic = 0;
  if (f.size() >= sizeof magic)
    if (auto ok = f.read(0, std::as_writable_bytes(std::span{&magic, 1})); !ok)
      return refuse(ok.error());
  for (const auto& k : llm_c_kinds)
    if (k.magic == magic) return place_in_llm_c(f, k);
  if (f.size() % width != 0)
    return bad_data(f, "found {} bytes, expected a multiple of {}: tokens of {} bits", f.size(),
                    width, 8 * width);
  if (width == 2) {
    const auto wide = looks_like_32_bits(f);
    if (!wide) return refuse(wide.error());
    if (*wide)
      return bad_data(
          f,
          "found numbers of 32 bits, expected 16 bits in a .bin without llm.c's header: "
          "call it .u32");
  }
  return token_place{0, f.size(), width};
}

}  // namespace

// The vocabulary is compared with the model's before the training begins: a token beyond it would
// be refused by a device only when it is first sampled.
expected<token_data> token_data::open(const std::filesystem::path& file,
                                      const std::filesystem::path& vocabulary,
                                      const troupe::model& m) {
  auto opened = untrusted_file::open(file.string());
  if (!opened) return refuse(opened.error());
  token_data d;
  d.sequence_ = m.sequence;
  auto size = opened->size();
  std::uint64_t words = 256;  // minimum vocabulary of the model
  if (const auto kind = file.extension(); kind == ".bin" || kind == ".u32") {
    const auto place = place_of_tokens(*opened, kind == ".bin" ? 2 : 4);
    if (!place) return refuse(place.error());
    words = 1;
    d.begin_ = place->begin;
    d.width_ = place->width;
    size = place->bytes;
  } else if (!vocabulary.empty()) {
    const auto encoder = open_vocabulary(vocabulary);
    if (!encoder) return refuse(encoder.error());
    const auto text = read_file(file.string(), max_text_bytes);
    if (!text) return refuse(text.error());
    d.tokens_ = (*encoder)->encode(*text);
    words = (*encoder)->size();
    for (const auto t : d.tokens_) words = std::max<std::uint64_t>(words, 1ull + t);  // added ones
    d.width_ = sizeof(std::uint32_t);
    size = d.tokens_.size() * d.width_;
  }
  d.count_ = size / d.width_;
  if (d.tokens_.empty()) d.file_ = std::make_shared<const untrusted_file>(std::move(*opened));
  if (m.vocabulary < words)
    return refuse(
        reason::kind::invalid, "{} has {} different tokens, the model's vocabulary only {}",
        vocabulary.empty() ? "a text read byte by byte" : vocabulary.string(), words, m.vocabulary);
  if (d.count_ < 1ull + m.sequence)
    return refuse(reason::kind::invalid,
                  "{} has {} tokens; one sequence and the following token need {}", file.string(),
                  d.count_, 1ull + m.sequence);
  return d;
}

// Tokens of both widths widen to 32 bits; a file is read at each use, so its size does not matter.
expected<void> token_data::read(std::uint64_t first, std::span<std::uint32_t> out) const {
  if (!file_) {
    std::copy_n(tokens_.begin() + static_cast<std::ptrdiff_t>(first), out.size(), out.begin());
    return {};
  }
  std::vector<std::byte> bytes(out.size() * width_);
  if (auto ok = file_->read(begin_ + first * width_, bytes); !ok) return ok;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = 0;
    std::memcpy(&out[i], &bytes[i * width_], width_);  // little-endian
  }
  return {};
}

// Starts are independent of each other, so sequences may overlap, as in nanoGPT.
expected<token_data::batch> token_data::sample(std::uint64_t seed, std::uint64_t iteration,
                                               std::uint64_t first, std::uint32_t rows) const {
  std::vector<std::uint32_t> tokens, targets, row(1ull + sequence_);
  const auto choice = mix(seed, iteration);
  for (std::uint32_t i = 0; i < rows; ++i) {
    const auto begin = mix(choice, first + i) % (count_ - sequence_);
    if (auto ok = read(begin, row); !ok) return refuse(ok.error());
    tokens.insert(tokens.end(), row.begin(), row.end() - 1);
    targets.insert(targets.end(), row.begin() + 1, row.end());
  }
  return batch{payload{std::move(tokens)}, payload{std::move(targets)}};
}

}  // namespace troupe::gpu
