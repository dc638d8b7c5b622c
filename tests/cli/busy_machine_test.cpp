#include <catch2/catch.hpp>

#include <sched.h>
#include <unistd.h>

#include "cli/cluster/busy_machine.hpp"
#include "runtime/host/stopwatch.hpp"
#include "runtime/process/cpu_time.hpp"
#include "runtime/process/process.hpp"

using namespace troupe;
using namespace troupe::cli;

TEST_CASE("timings of a machine that was too busy are no comparison of schedules") {
  const runtime::cpu_time idle{10, 2}, busy{10, 36};
  CHECK(schedules_text(0.723, 0.574, idle) ==
        "Median iteration: 723 ms under varuna, 574 ms under atlas (1.26x speedup).");
  CHECK(schedules_text(0.723, 0.574, {}) == schedules_text(0.723, 0.574, idle));
  for (const double atlas_s : {0.5, 3.33}) {
    const auto text = schedules_text(1.78, atlas_s, busy);
    CHECK_THAT(text, Catch::Contains("too busy") && Catch::Contains("3.6 s") &&
                         !Catch::Contains("speedup"));
  }
  CHECK_THAT(schedules_text(1.78, 3.33, idle),
             Catch::Contains("slower") && !Catch::Contains("speedup"));
  CHECK(busy_text(idle).empty());
  CHECK(busy_text({}).empty());
  CHECK(busy_text(runtime::cpu_time{}).empty());
}

TEST_CASE("processes that share one core wait for it about as long as they run") {
  if (!runtime::cpu_time_of(getpid())) return;  // this kernel does not count
  cpu_set_t all, one;
  REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &all)) CPU_SET(core, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  runtime::process_options o;
  o.command = {"sh", "-c", "while :; do :; done"};
  auto other = runtime::process::start(o);  // inherits the core
  REQUIRE(other);
  const auto before = *runtime::cpu_time_of(getpid());
  const runtime::stopwatch watch;
  while (watch.s() < 1) {
  }
  const auto had = *runtime::cpu_time_of(getpid()) - before;
  const auto theirs = runtime::cpu_time_of((*other)->id());
  sched_setaffinity(0, sizeof all, &all);
  CHECK(had.waited_s > 0.25);
  CHECK(had.ran_s + had.waited_s > 0.9);
  REQUIRE(theirs);
  CHECK(theirs->ran_s > 0);
  CHECK_FALSE(runtime::cpu_time_of(-1));
}
