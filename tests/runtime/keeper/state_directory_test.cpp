#include "runtime/keeper/state_directory.hpp"
#include "harness/facts.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <thread>

#include "runtime/host/pause.hpp"
#include "runtime/processes.hpp"

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::test;

TEST_CASE("a restarted host has a larger incarnation, even if its clock has been set back") {
  scratch dir;
  const auto path = dir / "state";
  const auto next = [&] {
    auto d = state_directory::open(path);
    REQUIRE(d);
    const auto i = (*d)->next_incarnation();
    REQUIRE(i);
    return *i;
  };
  const auto first = next(), second = next();
  CHECK(second > first);
  CHECK(second >> 36 > first >> 36);  // the count, not the random bits
  // The clock's reading at an earlier start: a century from now.
  std::ofstream{path + "/starts"} << (first >> 36) + 100ull * 365 * 24 * 60 << '\n';
  const auto third = next(), fourth = next();
  CHECK(third >> 36 == (first >> 36) + 100ull * 365 * 24 * 60 + 1);
  CHECK(fourth > third);
  for (const auto* nonsense : {"", "what is this", "99999999999999999999999"}) {
    std::ofstream{path + "/starts"} << nonsense << '\n';
    CHECK(next() >> 36 >= first >> 36);
  }
  CHECK(make_incarnation() >> 36 >= first >> 36);
  CHECK(make_incarnation() != make_incarnation());
}

TEST_CASE("a state directory admits one process at a time, and the refusal names its pid") {
  scratch dir;
  const auto path = dir / "state";
  auto mine = state_directory::open(path);
  REQUIRE(mine);
  const auto refused = state_directory::open(path);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == reason::kind::invalid);
  CHECK(troupe::test::has_facts(refused.error().text, {path, std::to_string(::getpid())}));
  mine->reset();
  CHECK(state_directory::open(path));
  const auto file = dir / "file";
  std::ofstream{file} << "x";
  CHECK_FALSE(state_directory::open(file));
}

TEST_CASE(
    "opening a state directory waits while programs of its last owner are still being killed") {
  scratch dir;
  const auto path = dir / "state";
  REQUIRE(state_directory::open(path));
  const int fd = ::open((path + "/lock").c_str(), O_RDWR);
  REQUIRE(::ftruncate(fd, 0) == 0);
  REQUIRE(::flock(fd, LOCK_EX) == 0);  // as keepers hold it after their host has died
  // The last owner is dead, and another process has its pid.
  const auto text = std::to_string(::getpid()) + " 1\n";
  REQUIRE(::pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  const auto refused = state_directory::open(path, 0.05);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().text.find("still being killed") != std::string::npos);
  std::thread later{[fd] {
    pause(0.1);
    ::close(fd);
  }};
  CHECK(state_directory::open(path, long_s));
  later.join();
}

TEST_CASE("an incarnation is the minute of the first start and 36 random bits") {
  scratch dir;
  auto d = state_directory::open(dir / "state");
  REQUIRE(d);
  const auto minutes = [] { return static_cast<std::uint64_t>(std::time(nullptr)) / 60; };
  const auto before = minutes();
  const auto first = (*d)->next_incarnation();
  REQUIRE(first);
  CHECK(*first >> 36 >= before);
  CHECK(*first >> 36 <= minutes());
  std::uint64_t set = 0, unset = 0;
  for (int i = 0; i < 100; ++i) {
    const auto bits = make_incarnation(5);
    CHECK(bits >> 36 == 5);
    set |= bits;
    unset |= ~bits;
  }
  constexpr auto random = (std::uint64_t{1} << 36) - 1;
  CHECK((set & random) == random);
  CHECK((unset & random) == random);
}
