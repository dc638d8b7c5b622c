#include "actors/ledger.hpp"

#include <catch2/catch.hpp>

#include "messages/random.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

cluster two_nodes() {
  cluster c;
  c.gpus.push_back({"A100-40GB", 40, 312, 19.5, 1555, 0.45, 3.67, ""});
  c.datacenters.push_back({"dc1", ""});
  c.nodes.push_back({"a", 0, 0, 4, {}, {}});
  c.nodes.push_back({"b", 0, 0, 2, {}, {}});
  return c;
}

journal_entry accepted(job_id id) {
  job_spec spec;
  spec.name = "job";
  spec.iterations = 100;
  return job_accepted{id, id * 7, 1, spec, "somebody"};
}

journal_entry granted(lease_id lease, job_id job, std::vector<lease_part> parts) {
  lease_granted g;
  g.lease = lease;
  g.job = job;
  g.at_s = 2;
  g.predicted_bytes = 10e9;
  g.parts = std::move(parts);
  return g;
}

}  // namespace

TEST_CASE("a GPU is never given to two leases") {
  ledger l{two_nodes()};
  REQUIRE(l.apply(accepted(1)));
  REQUIRE(l.apply(accepted(2)));
  REQUIRE(l.apply(granted(1, 1, {{0, 1, {0, 1}}})));
  CHECK(l.idle(0) == 2);
  auto second = l.apply(granted(2, 2, {{0, 1, {1, 2}}}));
  REQUIRE_FALSE(second);
  CHECK(second.error().text.find("not free") != std::string::npos);
  CHECK(l.idle(0) == 2);
  CHECK(l.holder(0, 2) == 0);
}

TEST_CASE("a lease is over when its last part is, and its job ends once") {
  ledger l{two_nodes()};
  REQUIRE(l.apply(accepted(1)));
  REQUIRE(l.apply(granted(1, 1, {{0, 1, {0}}, {1, 1, {0}}})));
  REQUIRE(l.apply(part_ended{1, 0, 3, lease_outcome::succeeded, 100, 0, ""}));
  CHECK(l.due(1, 4) == nullptr);
  CHECK(l.job(1)->state == job_state::running);
  REQUIRE(l.apply(part_ended{1, 1, 3, lease_outcome::succeeded, 100, 0, ""}));
  auto due = l.due(1, 4);
  REQUIRE(due);
  CHECK(due->final_state == job_state::finished);
  REQUIRE(l.apply(*due));
  CHECK_FALSE(l.apply(*due));
  CHECK(l.unfinished() == 0);
  CHECK(l.idle(0) == 4);
}

TEST_CASE(
    "a lost lease puts its job back into the queue with the progress that the slowest part kept") {
  ledger l{two_nodes()};
  REQUIRE(l.apply(accepted(1)));
  REQUIRE(l.apply(granted(1, 1, {{0, 1, {0}}, {1, 1, {0}}})));
  REQUIRE(l.apply(part_ended{1, 0, 3, lease_outcome::lost, 40, 0, "node a died"}));
  REQUIRE(l.apply(lease_revoked{1, 3, lease_outcome::lost, "node a died"}));
  REQUIRE(l.apply(part_ended{1, 1, 4, lease_outcome::lost, 70, 0, ""}));
  CHECK(l.job(1)->state == job_state::waiting);
  CHECK(l.job(1)->iterations_done == 40);
  CHECK(l.due(1, 5) == nullptr);
}

TEST_CASE("running out of memory raises every prediction for the job and is remembered beside it") {
  ledger l{two_nodes()};
  REQUIRE(l.apply(accepted(1)));
  REQUIRE(l.apply(granted(1, 1, {{0, 1, {0}}})));
  REQUIRE(
      l.apply(part_ended{1, 0, 3, lease_outcome::out_of_memory, 0, 41e9, "CUDA out of memory"}));
  const auto* j = l.job(1);
  CHECK(j->state == job_state::waiting);
  CHECK(j->memory_factor == Approx(4).epsilon(0.001));  // 10 GB were predicted, 40 did not do
  REQUIRE(j->memory.size() == 1);
  CHECK(j->memory[0].out_of_memory);
  CHECK(j->memory[0].peak_bytes == 41e9);
}

TEST_CASE("a cancelled job ends as cancelled whatever else happened to it") {
  ledger l{two_nodes()};
  REQUIRE(l.apply(accepted(1)));
  REQUIRE(l.apply(granted(1, 1, {{0, 1, {0}}})));
  REQUIRE(l.apply(lease_revoked{1, 3, lease_outcome::preempted, "makes room"}));
  REQUIRE(l.apply(lease_revoked{1, 3, lease_outcome::cancelled, "by a client"}));
  REQUIRE(l.apply(part_ended{1, 0, 4, lease_outcome::cancelled, 10, 0, ""}));
  auto due = l.due(1, 5);
  REQUIRE(due);
  CHECK(due->final_state == job_state::cancelled);
}

TEST_CASE("whatever a ledger accepts, its replay is the same ledger") {
  const auto c = two_nodes();
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    random_source random{seed};
    ledger l{c};
    std::vector<journal_entry> written;
    auto offer = [&](const journal_entry& e) {
      if (l.apply(e)) written.push_back(e);
    };
    for (int step = 0; step < 60; ++step) {
      const auto job = 1 + random.below(6);
      const auto lease = l.next_lease() > 1 && random.chance(0.8) ? 1 + random.below(l.next_lease())
                                                                  : l.next_lease();
      const auto outcome = static_cast<lease_outcome>(random.below(6));
      switch (random.below(5)) {
        case 0:
          offer(accepted(job));
          break;
        case 1: {
          std::vector<lease_part> parts;
          for (node_index n = 0; n < 2; ++n)
            if (random.chance(0.6))
              parts.push_back({n, 1, {static_cast<std::uint16_t>(random.below(4))}});
          offer(granted(l.next_lease(), job, parts));
          break;
        }
        case 2:
          offer(lease_revoked{lease, 5, outcome, ""});
          break;
        case 3:
          offer(part_ended{lease, static_cast<std::uint32_t>(random.below(2)), 6, outcome,
                           random.below(50), 0, ""});
          break;
        case 4:
          if (auto due = l.due(job, 7))
            offer(*due);
          else
            offer(job_ended{job, 7, job_state::cancelled, ""});
          break;
      }
      for (node_index n = 0; n < 2; ++n) {
        std::uint32_t free = 0;
        for (std::uint16_t d = 0; d < c.nodes[n].gpus; ++d) free += l.holder(n, d) == 0 ? 1 : 0;
        REQUIRE(free == l.idle(n));
      }
    }
    ledger again{c};
    for (const auto& e : written) REQUIRE(again.apply(e));
    REQUIRE(again == l);
  }
}
