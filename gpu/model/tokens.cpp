#include "gpu/model/tokens.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "gpu/text/tokenizer.hpp"
#include "messages/random.hpp"

namespace troupe::gpu {

namespace {

constexpr std::uint32_t llm_c_magic = 20240520;
constexpr std::size_t llm_c_header = 1024;
constexpr std::size_t max_text_bytes = 1u << 30;  // that is encoded at once, in memory

std::uint64_t mix(std::uint64_t seed, std::uint64_t value) {
  return random_source{seed ^ (value + 0x9e3779b97f4a7c15ull) * 0xd1342543de82ef95ull}.next();
}

payload as_bytes(std::vector<std::uint32_t> tokens) {
  auto owner = std::make_shared<std::vector<std::uint32_t>>(std::move(tokens));
  const auto view = std::as_bytes(std::span{*owner});
  return payload{std::move(owner), view};
}

}  // namespace

expected<token_data> token_data::open(const std::filesystem::path& file,
                                      const std::filesystem::path& vocabulary,
                                      const troupe::model& m) {
  const auto no = [](std::string text) { return refuse(reason::kind::invalid, std::move(text)); };
  auto opened = untrusted_file::open(file.string());
  if (!opened) return refuse(opened.error());
  token_data d;
  d.sequence_ = m.sequence;
  auto size = opened->size();
  std::uint64_t words = 256;  // minimum vocabulary of the model
  if (const auto kind = file.extension(); kind == ".bin" || kind == ".u32") {
    d.width_ = kind == ".bin" ? 2 : 4;
    words = 1;
    std::uint32_t first = 0;
    if (kind == ".bin" && size >= llm_c_header)
      if (auto ok = opened->read(0, std::as_writable_bytes(std::span{&first, 1})); !ok)
        return refuse(ok.error());
    if (first == llm_c_magic) {
      d.begin_ = llm_c_header;
      size -= llm_c_header;
    }
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
    return no(fmt::format("{} has {} different tokens, the model's vocabulary only {}",
                          vocabulary.empty() ? "a text read byte by byte" : vocabulary.string(),
                          words, m.vocabulary));
  if (d.count_ < 1ull + m.sequence)
    return no(fmt::format("{} has {} tokens; one sequence and the following token need {}",
                          file.string(), d.count_, 1ull + m.sequence));
  return d;
}

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
  return batch{as_bytes(std::move(tokens)), as_bytes(std::move(targets))};
}

}  // namespace troupe::gpu
