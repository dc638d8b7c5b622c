#include "gpu/files/sha256.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

#include "gpu/files/directory_entries.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/untrusted_file.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t block_bytes = 64;
// The first 32 bits of the fractional parts of the square roots of the first 8 primes, and of the
// cube roots of the first 64 (FIPS 180-4).
constexpr std::array<std::uint32_t, 8> first_state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
constexpr std::array<std::uint32_t, 64> roots{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

class sha256_sum {
 public:
  void add(std::span<const std::byte> bytes) {
    all_ += bytes.size();
    while (!bytes.empty()) {
      const auto n = std::min(bytes.size(), block_bytes - filled_);
      std::ranges::copy(bytes.first(n), block_.begin() + static_cast<std::ptrdiff_t>(filled_));
      filled_ += n;
      bytes = bytes.subspan(n);
      if (filled_ == block_bytes) compress();
    }
  }
  void add(std::string_view text) { add(std::as_bytes(std::span{text})); }

  // A file may be larger than the memory.
  expected<void> add_file(const fs::path& path) {
    const auto file = untrusted_file::open(path.string());
    if (!file) return refuse(file.error());
    std::vector<std::byte> piece;
    constexpr std::uint64_t piece_bytes = 1u << 20;
    for (std::uint64_t at = 0; at < file->size(); at += piece.size()) {
      piece.resize(std::min(piece_bytes, file->size() - at));
      if (auto ok = file->read(at, std::span{piece}); !ok) return ok;
      add(piece);
    }
    return {};
  }

  std::string digits() {
    const auto bits = 8 * all_;
    add(std::string_view{"\x80"});
    while (filled_ != block_bytes - sizeof bits) add(std::string_view{"\0", 1});
    for (int shift = 56; shift >= 0; shift -= 8)
      block_[filled_++] = static_cast<std::byte>(bits >> shift);
    compress();
    std::string text;
    for (const auto word : state_)
      for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
    return text;
  }

 private:
  void compress() {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 16; ++i)
      for (std::size_t k = 0; k < 4; ++k)
        w[i] = w[i] << 8 | std::to_integer<std::uint32_t>(block_[4 * i + k]);
    for (std::size_t i = 16; i < 64; ++i)
      w[i] = w[i - 16] + w[i - 7] +
             (std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3) +
             (std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10);
    auto [a, b, c, d, e, f, g, h] = state_;
    for (std::size_t i = 0; i < 64; ++i) {
      const auto one = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                       ((e & f) ^ (~e & g)) + roots[i] + w[i];
      const auto two =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
    }
    const std::array<std::uint32_t, 8> more{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) state_[i] += more[i];
    filled_ = 0;
  }

  std::array<std::uint32_t, 8> state_ = first_state;
  std::array<std::byte, block_bytes> block_{};
  std::size_t filled_ = 0;
  std::uint64_t all_ = 0;
};

}  // namespace

expected<std::string> sha256_of_files(const std::vector<fs::path>& files) {
  sha256_sum sum;
  for (const auto& f : files)
    if (auto ok = sum.add_file(f); !ok) return refuse(ok.error());
  return sum.digits();
}

expected<std::string> sha256_of_weights(const fs::path& folder) {
  std::error_code error;
  auto files = entries_of(folder, error);
  if (error) return refuse(reason::kind::unknown, "{}: {}", folder.string(), error.message());
  std::erase_if(files, [](const fs::path& f) { return f.extension() != ".safetensors"; });
  if (files.empty())
    return refuse(reason::kind::unknown, "{}: found no *.safetensors", folder.string());
  std::ranges::sort(files);
  sha256_sum sum;
  for (const auto& f : files) {
    sum.add(f.filename().string());
    sum.add(std::string_view{"\0", 1});
    if (auto ok = sum.add_file(f); !ok) return refuse(ok.error());
  }
  return sum.digits();
}

}  // namespace troupe::gpu
