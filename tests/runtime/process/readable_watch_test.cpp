#include "runtime/process/readable_watch.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>

#include "runtime/host/pause.hpp"
#include "runtime/world.hpp"

using namespace troupe::runtime;
using namespace troupe::runtime::test;

TEST_CASE(
    "a watch calls back each time a watched descriptor becomes readable, and at no other time") {
  int ends[2], others[2];
  REQUIRE(::pipe(ends) == 0);
  REQUIRE(::pipe(others) == 0);
  std::atomic<int> notified = 0;
  {
    readable_watch watch{[&] { ++notified; }};
    watch.add(ends[0]);
    pause(0.02);
    CHECK(notified == 0);
    for (int i = 1; i <= 3; ++i) {
      REQUIRE(::write(ends[1], "x", 1) == 1);
      CHECK(eventually([&] { return notified == i; }));
    }
    watch.add(others[0]);
    REQUIRE(::write(others[1], "x", 1) == 1);
    CHECK(eventually([&] { return notified == 4; }));
    CHECK_THROWS_AS(watch.add(-1), std::system_error);
  }
  CHECK(notified == 4);  // closing the watch calls nothing
  for (const int fd : {ends[0], ends[1], others[0], others[1]}) ::close(fd);
}
