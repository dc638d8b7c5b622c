#include "gpu/model/tokens.hpp"

#include <fmt/format.h>

#include <cstring>

#include "gpu/model/mapped_file.hpp"
#include "gpu/text/bpe.hpp"
#include "messages/random.hpp"

namespace troupe::gpu {

namespace {

constexpr std::uint32_t llm_c_magic = 20240520;
constexpr std::size_t llm_c_header = 1024;

std::uint64_t mix(std::uint64_t seed, std::uint64_t value) {
  return random_source{seed ^ (value + 0x9e3779b97f4a7c15ull) * 0xd1342543de82ef95ull}.next();
}

payload as_bytes(const std::vector<std::uint32_t>& tokens) {
  auto owner = std::make_shared<std::vector<std::uint32_t>>(tokens);
  const auto view = std::as_bytes(std::span{*owner});
  return payload{std::move(owner), view};
}

}  // namespace

expected<token_data> token_data::open(const std::filesystem::path& file,
                                      const std::filesystem::path& vocabulary,
                                      const troupe::model& m) {
  const auto no = [](std::string text) { return refuse(reason::kind::invalid, std::move(text)); };
  const auto mapped = map_file(file);
  if (!mapped) return refuse(mapped.error());
  token_data d;
  d.sequence_ = m.sequence;
  d.bytes_ = mapped->bytes;
  auto size = mapped->size;
  std::uint64_t words = 256;  // minimum vocabulary of the model
  if (const auto kind = file.extension(); kind == ".bin" || kind == ".u32") {
    d.width_ = kind == ".bin" ? 2 : 4;
    words = 1;
    std::uint32_t first = 0;
    if (kind == ".bin" && size >= llm_c_header) std::memcpy(&first, d.bytes_.get(), sizeof first);
    if (first == llm_c_magic) {
      d.bytes_ = {d.bytes_, d.bytes_.get() + llm_c_header};
      size -= llm_c_header;
    }
  } else if (!vocabulary.empty()) {
    const auto encoder = bpe::open(vocabulary);
    if (!encoder) return refuse(encoder.error());
    auto tokens = std::make_shared<std::vector<std::uint32_t>>(
        encoder->encode({reinterpret_cast<const char*>(mapped->bytes.get()), size}));
    d.width_ = 4;
    words = encoder->size();
    size = tokens->size() * sizeof(std::uint32_t);
    d.bytes_ = {tokens, reinterpret_cast<const std::byte*>(tokens->data())};
  }
  d.count_ = size / d.width_;
  if (m.vocabulary < words)
    return no(fmt::format("{} has {} different tokens, the model's vocabulary only {}",
                          vocabulary.empty() ? "a text read byte by byte" : vocabulary.string(),
                          words, m.vocabulary));
  if (d.count_ < 1ull + m.sequence)
    return no(fmt::format("{} has {} tokens; one sequence and the following token need {}",
                          file.string(), d.count_, 1ull + m.sequence));
  return d;
}

std::uint32_t token_data::operator[](std::uint64_t i) const {
  std::uint32_t token = 0;
  std::memcpy(&token, bytes_.get() + i * width_, width_);  // little-endian
  return token;
}

token_data::batch token_data::sample(std::uint64_t seed, std::uint64_t iteration,
                                     std::uint64_t first, std::uint32_t rows) const {
  std::vector<std::uint32_t> tokens, targets;
  const auto choice = mix(seed, iteration);
  for (std::uint32_t row = 0; row < rows; ++row) {
    const auto begin = mix(choice, first + row) % (count_ - sequence_);
    for (std::uint32_t i = 0; i < sequence_; ++i) {
      tokens.push_back((*this)[begin + i]);
      targets.push_back((*this)[begin + i + 1]);
    }
  }
  return {as_bytes(tokens), as_bytes(targets)};
}

}  // namespace troupe::gpu
