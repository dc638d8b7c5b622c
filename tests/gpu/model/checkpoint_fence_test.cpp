#include "gpu/model/checkpoint_fence.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "gpu/model/checkpoint.hpp"
#include "harness/scratch.hpp"

using namespace troupe;
using namespace troupe::gpu;

TEST_CASE("only the newest lease that has opened a checkpoint directory may write it") {
  const test::scratch dir;
  const std::filesystem::path root = dir / "checkpoint";
  CHECK(take_fence(root, 7));
  CHECK(take_fence(root, 7));  // its trainer began again
  CHECK(take_fence(root, 12));
  const auto refused = take_fence(root, 7).error();
  CHECK(refused.code == reason::kind::stale);
  CHECK(refused.text.find("lease 12 has taken") == 0);
  CHECK(check_fence(root, 7).error().code == reason::kind::stale);
  CHECK(check_fence(root, 12));
  CHECK(check_fence(root, 13));

  int written = 0;
  const auto write = [&] {
    ++written;
    return expected<void>{};
  };
  CHECK(write_fenced(root, 7, write).error().code == reason::kind::stale);
  CHECK(written == 0);
  CHECK(write_fenced(root, 12, write));
  CHECK(written == 1);
}

TEST_CASE("an impossible checkpoint directory is refused, and an invalid fence file is replaced") {
  const test::scratch dir;
  std::ofstream{dir / "file"} << "x";
  CHECK(take_fence(dir / "file", 1).error().code == reason::kind::unavailable);
  std::ofstream{dir / "fence"} << "what is this";
  CHECK(take_fence(dir.path(), 3));
  CHECK(check_fence(dir.path(), 2).error().code == reason::kind::stale);
}

TEST_CASE("a fence beyond all leases, and one that is no file, are refused, not taken for newer") {
  const test::scratch dir;
  for (const auto* text :
       {"99999999999999999999\n", "9223372036854775808", "18446744073709551615\n"}) {
    std::ofstream{dir / "fence"} << text;
    const auto refused = take_fence(dir.path(), 3);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == reason::kind::malformed);
    CHECK(check_fence(dir.path(), 3).error().code == reason::kind::malformed);
  }
  std::ofstream{dir / "fence"} << "9223372036854775807";
  CHECK(take_fence(dir.path(), 3).error().code == reason::kind::stale);
  std::filesystem::remove(dir / "fence");
  REQUIRE(::mkfifo((dir / "fence").c_str(), 0600) == 0);
  CHECK(take_fence(dir.path(), 3).error().code == reason::kind::invalid);
}

TEST_CASE("stages of two leases never write the same file") {
  stage_spec s;
  s.sublayers = 4;
  auto later = s;
  s.lease = 7, later.lease = 12;
  CHECK(stage_file(s) != stage_file(later));
  CHECK(stage_file(s).find("lease-7") != std::string::npos);
}
