#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "harness/scratch.hpp"
#include "runtime/host/file_lock.hpp"
#include "runtime/zeromq/port_claim.hpp"

using namespace troupe;
using namespace troupe::runtime;

TEST_CASE("a locked file is refused to others by the holder's number, until its process dies") {
  const troupe::test::scratch where;
  const auto path = where / "lock";
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const auto child = ::fork();
  if (child == 0) {
    const auto lock = file_lock::take(path, "it");
    [[maybe_unused]] const auto told = ::write(ready[1], lock ? "y" : "n", 1);
    for (;;) ::pause();
  }
  char took = 0;
  REQUIRE(::read(ready[0], &took, 1) == 1);
  CHECK(took == 'y');
  const auto other = file_lock::take(path, "the directory d");
  REQUIRE_FALSE(other);
  CHECK(other.error().text == "the directory d is in use by process " + std::to_string(child));
  CHECK(file_lock::holder(path) == child);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK_FALSE(file_lock::holder(path));
  CHECK(file_lock::take(path, "it"));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("a refused lock leaves the holder's number where it is") {
  const troupe::test::scratch where;
  const auto lock = file_lock::take(where / "lock", "it");
  REQUIRE(lock);
  for (int i = 0; i < 2; ++i) CHECK_FALSE(file_lock::take(where / "lock", "it"));
  CHECK(file_lock::holder(where / "lock") == ::getpid());
}

TEST_CASE("claimed ports are refused to others, and are free with the end of the claim") {
  constexpr int first = 28300;
  {
    const auto claim = port_claim::take(first, 3);
    REQUIRE(claim);
    const auto other = port_claim::take(first + 2, 3);
    REQUIRE_FALSE(other);
    CHECK(other.error().text ==
          "port 28302 of 127.0.0.1 is in use by process " + std::to_string(::getpid()));
  }
  CHECK(port_claim::take(first + 2, 3));
  CHECK_FALSE(port_claim::take(65535, 2));
}
