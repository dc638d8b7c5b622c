#include "runtime/journal/wal_check.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "harness/facts.hpp"
#include "harness/scratch.hpp"

// Write-ahead logs generated here, after SQLite's description of their format.

using namespace troupe;
using namespace troupe::runtime;

namespace {

struct made_wal {
  std::string bytes;
  bool big;
  std::uint32_t s0 = 0, s1 = 0;
  std::size_t page;

  explicit made_wal(std::size_t page_bytes = 512, bool big_endian = false,
                    std::uint32_t magic = 0x377f0682)
      : big{big_endian}, page{page_bytes} {
    put(magic | (big ? 1 : 0)), put(3007000);
    put(static_cast<std::uint32_t>(page)), put(7);
    put(0x1234), put(0x5678);
    sum(0, 24);
    put(s0), put(s1);
  }
  void put(std::uint32_t x) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(x >> shift);
  }
  std::uint32_t word(std::size_t at) const {
    std::uint32_t w = 0;
    for (std::size_t i = 0; i < 4; ++i)
      w |= std::uint32_t{static_cast<std::uint8_t>(bytes[at + i])} << 8 * (big ? 3 - i : i);
    return w;
  }
  void sum(std::size_t from, std::size_t until) {
    for (; from < until; from += 8) {
      s0 += word(from) + s1;
      s1 += word(from + 4) + s0;
    }
  }
  /// A page of a transaction; `last`: it ends that.
  void frame(std::uint32_t number, bool last) {
    const auto at = bytes.size();
    put(number), put(last ? number : 0), put(0x1234), put(0x5678);
    const std::string content(page, static_cast<char>('a' + number));
    sum(at, at + 8);
    bytes += std::string(8, '\0') + content;
    sum(at + 24, at + 24 + page);
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t b = 0; b < 4; ++b)
        bytes[at + 16 + 4 * i + b] = static_cast<char>((i == 0 ? s0 : s1) >> (24 - 8 * b));
  }
};

/// The refusal of a file; empty: it is accepted.
std::string said(const std::string& bytes) {
  const troupe::test::scratch room;
  const auto ok = check_wal(room.write("wal", bytes));
  return ok ? "" : ok.error().text;
}

made_wal of_transactions(const std::vector<std::uint32_t>& pages, std::size_t page = 512,
                         bool big = false) {
  made_wal w{page, big};
  std::uint32_t number = 0;
  for (const auto n : pages)
    for (std::uint32_t i = 1; i <= n; ++i) w.frame(++number, i == n);
  return w;
}

constexpr std::size_t header = 32, frame_header = 24;

}  // namespace

TEST_CASE("write-ahead logs of either byte order and every page size are accepted") {
  for (const bool big : {false, true})
    for (const std::size_t page : {512, 1024, 4096, 65536})
      CHECK(said(of_transactions({2, 1, 3}, page, big).bytes) == "");
  CHECK(said("") == "");
  CHECK(said(made_wal{}.bytes) == "");
  CHECK(check_wal("/nowhere/at/all"));
}

TEST_CASE("a WAL with frames and a damaged header is refused") {
  const auto with = [](made_wal w) {
    w.frame(1, true);
    return said(w.bytes);
  };
  CHECK(with(made_wal{}) == "");
  CHECK(with(made_wal{512, false, 0x377f0680}) != "");
  CHECK(with(made_wal{256}) != "");
  CHECK(with(made_wal{131072}) != "");
  const auto whole = of_transactions({1, 1}).bytes;
  for (std::size_t at = 0; at < header; ++at) {
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    CAPTURE(at);
    CHECK(said(damaged) != "");
  }
  CHECK(said(std::string(header, 'x')) == "");  // nothing follows
  CHECK(said(std::string(header + 1, 'x')) != "");
}

TEST_CASE("a damaged WAL frame is refused by its number if a later transaction is intact") {
  const auto whole = of_transactions({1, 2, 1}).bytes;
  constexpr std::size_t frame = frame_header + 512;
  for (std::size_t i = 0; i < 4; ++i)
    for (const std::size_t part :
         {std::size_t{1}, std::size_t{9}, std::size_t{17}, frame_header + 5}) {
      CAPTURE(i, part);
      auto damaged = whole;
      auto& byte = damaged[header + i * frame + part];
      byte = static_cast<char>(byte ^ 4);
      const auto text = said(damaged);
      // The last frame may have been torn: its transaction was never confirmed.
      if (i == 3)
        CHECK(text == "");
      else if (part != 17 || i == 0)  // else the next frame's checksum does not follow either
        CHECK(troupe::test::has_facts(text, {"frame " + std::to_string(i + 1)}));
    }
  // A transaction of two frames, the first of which is damaged, with nothing behind it.
  auto torn = of_transactions({1, 2}).bytes;
  torn[header + frame + frame_header] = 'x';
  CHECK(said(torn) == "");
  CHECK(said(whole.substr(0, whole.size() - 100)) == "");
  CHECK(said(whole.substr(0, whole.size() - 1)) == "");
}
