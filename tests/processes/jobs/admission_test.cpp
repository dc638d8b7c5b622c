#include "harness/hostile_specs.hpp"
#include "processes/fixture.hpp"

// A real controller, and clients of other authors.

using namespace troupe;
using namespace troupe::test;

TEST_CASE("a cluster of processes refuses hostile jobs, and expensive ones delay nobody") {
  fixture f{"hostile"};
  REQUIRE(f.wait_for_nodes());
  std::size_t accepted = 0;
  for (const auto& h : harness::hostile_specs()) {
    INFO(h.what);
    auto reply = f.client->ask(submit_job{0, harness::hostile_job(h)}, 5).reply;
    // A frame that is too large for the controller may get no reply.
    if (!reply) continue;
    const auto& said = std::get<submit_reply>(reply->first);
    const bool never_runs = said.why.code == reason::kind::infeasible;  // accepted, and failed
    CHECK((said.job == 0) == (h.refused || never_runs));
    accepted += said.job != 0 || never_runs;
  }
  const runtime::stopwatch honest;
  const auto id = f.submit("honest", "true");
  REQUIRE(f.wait_until([id](const query_reply& r) {
    return std::any_of(r.jobs.begin(), r.jobs.end(),
                       [id](const auto& j) { return j.job == id && is_final(j.state); });
  }));
  CHECK(honest.s() < 30);  // the costly ones have at most 5 s each, and go after it
  CHECK(f.jobs().jobs.size() == accepted + 1);
}
