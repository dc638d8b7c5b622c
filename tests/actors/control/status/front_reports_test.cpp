#include "actors/control/status/front_reports.hpp"

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
  const ledger none{c};
  const auto front = front_address(1);
  front_reports all;
  all.take(c, none, front, says(2, 1, 7), 5);
  all.take(c, none, front, says(1, 99, 8), 6);  // of an earlier process
  all.take(c, none, front, says(2, 1, 9), 6);
  all.take(c, none, node_address(0), says(3, 1, 10), 6);
  auto list = all.list(c, 6);
  REQUIRE(list.size() == 2);
  CHECK_FALSE(list[0].present);
  CHECK(list[0].name == "front-1");
  CHECK(list[1].present);
  CHECK(list[1].report.requests == 7);
  all.take(c, none, front, says(2, 2, 11), 7);
  CHECK(all.list(c, 7)[1].report.requests == 11);
}

TEST_CASE("a front that is silent is absent, and keeps what it said") {
  const auto c = with_fronts();
  const ledger none{c};
  front_reports all;
  all.take(c, none, front_address(0), says(1, 1, 7), 5);
  CHECK(all.list(c, 17)[0].present);
  CHECK_FALSE(all.list(c, 17.5)[0].present);
  CHECK(all.list(c, 17.5)[0].report.requests == 7);
}

TEST_CASE("a front's decoders are those of leases that decode there, each once") {
  const auto c = with_fronts();
  ledger book{c};
  job_spec serves, plain;
  serves.serve.emplace();
  for (const job_id id : {1, 2}) {
    REQUIRE(book.apply(job_accepted{id, 1000 + id, 0, id == 1 ? serves : plain, "alice"}));
    lease_granted g;
    g.lease = 40 + id, g.job = id;
    g.parts.push_back({3, 5, book.take_lowest(3, 1)});
    REQUIRE(book.apply(g));
  }
  auto r = says(1, 1, 7);
  for (const auto& [node, lease] : {std::pair{3, 41}, {3, 42}, {3, 99}, {2, 41}, {3, 41}}) {
    r.decoders.push_back({static_cast<node_index>(node), {}});
    r.decoders.back().state.lease = static_cast<lease_id>(lease);
  }
  front_reports all;
  all.take(c, book, front_address(0), r, 5);
  const auto known = all.list(c, 5)[0].report.decoders;
  REQUIRE(known.size() == 1);
  CHECK(known[0] == r.decoders[0]);
}
