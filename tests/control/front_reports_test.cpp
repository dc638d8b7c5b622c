#include "actors/control/front_reports.hpp"

#include <catch2/catch.hpp>

#include "harness/small_cluster.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

cluster with_fronts() {
  auto c = *harness::small_cluster();
  c.fronts = {{"front-1", 0, ""}, {"front-2", 1, ""}};
  c.settings.lease_s = 10;
  c.settings.heartbeat_s = 1;
  return c;
}

front_report says(std::uint64_t incarnation, std::uint64_t sequence, std::uint32_t requests) {
  front_report r;
  r.incarnation = incarnation, r.sequence = sequence, r.requests = requests;
  return r;
}

}  // namespace

TEST_CASE("the newest report of each front counts, whatever comes late") {
  const auto c = with_fronts();
  const auto front = front_address(1);
  front_reports all;
  all.hear(c, front, says(2, 1, 7), 5);
  all.hear(c, front, says(1, 99, 8), 6);  // of an earlier process
  all.hear(c, front, says(2, 1, 9), 6);
  all.hear(c, node_address(0), says(3, 1, 10), 6);
  auto list = all.list(c, 6);
  REQUIRE(list.size() == 2);
  CHECK_FALSE(list[0].present);
  CHECK(list[0].name == "front-1");
  CHECK(list[1].present);
  CHECK(list[1].says.requests == 7);
  all.hear(c, front, says(2, 2, 11), 7);
  CHECK(all.list(c, 7)[1].says.requests == 11);
}

TEST_CASE("a front that is silent is absent, and keeps what it said") {
  const auto c = with_fronts();
  front_reports all;
  all.hear(c, front_address(0), says(1, 1, 7), 5);
  CHECK(all.list(c, 17)[0].present);
  CHECK_FALSE(all.list(c, 17.5)[0].present);
  CHECK(all.list(c, 17.5)[0].says.requests == 7);
}
