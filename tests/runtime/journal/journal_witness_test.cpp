#include "runtime/journal/journal_witness.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include <sys/syscall.h>
#include <unistd.h>

#include "harness/scratch.hpp"

namespace {
int syncs = 0;
}
/// In the place of the C library's.
extern "C" int fdatasync(int fd) {
  ++syncs;
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}

using namespace troupe;
using namespace troupe::runtime;
using record = journal_witness::record;

namespace {

struct witness_file {
  troupe::test::scratch room;
  std::string path = room / "witness";

  std::unique_ptr<journal_witness> open() const {
    auto w = journal_witness::open(path);
    REQUIRE(w);
    return std::move(*w);
  }
  /// The sequence numbers found in the two slots, in the file's order.
  std::vector<std::uint64_t> sequences() const {
    const auto w = open();
    std::vector<std::uint64_t> all;
    for (const auto& r : w->found()) all.push_back(r.sequence);
    return all;
  }
  void damage(std::size_t slot) const {
    std::fstream f{path, std::ios::in | std::ios::out | std::ios::binary};
    f.seekp(static_cast<std::streamoff>(512 * slot + 30));
    f << "xxxx";
  }
};

}  // namespace

TEST_CASE("a witness that was never written is new, and its first record goes into both slots") {
  const witness_file f;
  {
    const auto w = f.open();
    CHECK(w->is_new());
    CHECK(w->found().empty());
    REQUIRE(w->write({7, 1}));
    CHECK_FALSE(w->is_new());
    CHECK(w->sync());
  }
  CHECK(std::filesystem::file_size(f.path) == 1024);
  const auto again = f.open();
  CHECK_FALSE(again->is_new());
  CHECK(again->found() == std::vector<record>{{7, 1}, {7, 1}});
}

TEST_CASE("the two newest records are kept, and a new record replaces the older one") {
  const witness_file f;
  for (std::uint64_t n = 1; n <= 9; ++n) {
    const auto w = f.open();  // a new process each time
    REQUIRE(w->write({7, n}));
  }
  auto all = f.sequences();
  std::ranges::sort(all);
  CHECK(all == std::vector<std::uint64_t>{8, 9});
  {
    const auto w = f.open();
    for (std::uint64_t n = 10; n <= 15; ++n) REQUIRE(w->write({7, n}));
  }
  all = f.sequences();
  std::ranges::sort(all);
  CHECK(all == std::vector<std::uint64_t>{14, 15});
}

TEST_CASE("a torn slot is ignored, and the next record replaces it") {
  for (const std::size_t slot : {0, 1}) {
    const witness_file f;
    {
      const auto w = f.open();
      for (std::uint64_t n = 1; n <= 4; ++n) REQUIRE(w->write({7, n}));
    }
    f.damage(slot);
    const auto left = f.sequences();
    REQUIRE(left.size() == 1);
    REQUIRE(f.open()->write({7, 9}));
    auto all = f.sequences();
    std::ranges::sort(all);
    CHECK(all == std::vector<std::uint64_t>{left[0], 9});
  }
}

TEST_CASE("a witness is synced once after each write") {
  witness_file f;
  const auto w = f.open();
  const auto syncs_now = [&] {
    const int before = syncs;
    CHECK(w->sync());
    return syncs - before;
  };
  CHECK(syncs_now() == 0);
  for (std::uint64_t n = 1; n <= 2; ++n) {
    CHECK(w->write({1, n}));
    CHECK(syncs_now() == 1);
    CHECK(syncs_now() == 0);
  }
}
