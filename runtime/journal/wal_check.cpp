#include "runtime/journal/wal_check.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <vector>

#include "messages/base/refuse.hpp"

// The format: https://www.sqlite.org/fileformat2.html, "The Write-Ahead Log".

// A log that is being written ends in one of two ways: after a whole transaction, or in the middle
// of the last one. Damage in the middle looks the same to SQLite, which then drops every
// transaction behind it without an error. It differs in one point: intact frames of a later
// transaction follow. Their writer had synced the damaged frame before it wrote them, so that was
// durable and is lost.
namespace troupe::runtime {
namespace {

constexpr std::size_t header_bytes = 32, frame_header_bytes = 24;
constexpr std::uint32_t magic = 0x377f0682;  // lowest bit: checksums are of big-endian words

using bytes_view = std::span<const std::uint8_t>;
using checksums = std::array<std::uint32_t, 2>;

std::uint32_t big_endian(bytes_view b, std::size_t at) {
  return std::uint32_t{b[at]} << 24 | std::uint32_t{b[at + 1]} << 16 |
         std::uint32_t{b[at + 2]} << 8 | b[at + 3];
}

// Frames are 24 bytes of header and a page. The header has, at these offsets: 0 the page number, 4
// the size of the database after a commit (0: no commit), 8 two salts as in the file header, 16 two
// words of a checksum that continues the one before.
class wal_file {
 public:
  explicit wal_file(std::vector<std::uint8_t> bytes) : bytes_{std::move(bytes)} {
    const bytes_view all{bytes_};
    page_bytes_ = big_endian(all, 8);
    big_ = (big_endian(all, 0) & 1) != 0;
    start_ = add({0, 0}, all.subspan(0, 24));
    good_ = (big_endian(all, 0) & ~1U) == magic && page_bytes_ >= 512 && page_bytes_ <= 65536 &&
            start_ == stored(all, 24);
  }

  bool good_header() const { return good_; }
  std::size_t frames() const {
    return (bytes_.size() - header_bytes) / (frame_header_bytes + page_bytes_);
  }
  /// A frame's checksum continues that of the frame before it.
  bool genuine(std::size_t i) const {
    const auto f = frame(i);
    if (std::memcmp(f.data() + 8, bytes_.data() + 16, 8) != 0) return false;  // the salts
    const auto before = i == 0 ? start_ : stored(frame(i - 1), 16);
    return add(add(before, f.subspan(0, 8)), f.subspan(frame_header_bytes)) == stored(f, 16);
  }
  bool ends_transaction(std::size_t i) const { return big_endian(frame(i), 4) != 0; }

 private:
  bytes_view frame(std::size_t i) const {
    const auto size = frame_header_bytes + page_bytes_;
    return bytes_view{bytes_}.subspan(header_bytes + i * size, size);
  }
  static checksums stored(bytes_view b, std::size_t at) {
    return {big_endian(b, at), big_endian(b, at + 4)};
  }
  // The checksum of the file format: two sums that feed each other, over pairs of words.
  checksums add(checksums s, bytes_view b) const {
    const auto word = [&](std::size_t at) {
      const auto w = big_endian(b, at);
      return big_ ? w : __builtin_bswap32(w);
    };
    for (std::size_t i = 0; i + 8 <= b.size(); i += 8) {
      s[0] += word(i) + s[1];
      s[1] += word(i + 4) + s[0];
    }
    return s;
  }

  std::vector<std::uint8_t> bytes_;
  std::size_t page_bytes_ = 0;
  bool big_ = false, good_ = false;
  checksums start_{};
};

}  // namespace

expected<void> check_wal(const std::string& path) {
  std::ifstream in{path, std::ios::binary};
  std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>{in}, {}};
  if (bytes.size() <= header_bytes) return {};  // it never had a frame, or the witness knows
  const wal_file wal{std::move(bytes)};
  if (!wal.good_header()) return refuse(reason::kind::malformed, "{} has a damaged header", path);
  // Old frames of an earlier log may follow the newest ones: their salts differ, so they are not
  // intact.
  std::size_t bad = 0;
  while (bad < wal.frames() && wal.genuine(bad)) ++bad;
  bool ended = bad < wal.frames() && wal.ends_transaction(bad);
  for (auto i = bad + 1; i < wal.frames(); ++i) {
    if (!wal.genuine(i)) continue;
    if (ended)
      return refuse(reason::kind::malformed, "{} is damaged in frame {}, but later ones are intact",
                    path, bad + 1);
    ended = wal.ends_transaction(i);
  }
  return {};
}

}  // namespace troupe::runtime
