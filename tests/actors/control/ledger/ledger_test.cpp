#include "actors/control/ledger/ledger.hpp"

#include <catch2/catch.hpp>

#include "messages/base/random.hpp"

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

TEST_CASE("a lease ends when its last part ends, and its job ends once") {
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

TEST_CASE("a lost lease puts its job back into the queue with the progress of its slowest part") {
  ledger l{two_nodes()};
  REQUIRE(l.apply(accepted(1)));
  REQUIRE(l.apply(granted(1, 1, {{0, 1, {0}}, {1, 1, {0}}})));
  REQUIRE(l.apply(part_ended{1, 0, 3, lease_outcome::lost, 40, 0, "node a died"}));
  REQUIRE(l.apply(lease_revoked{1, 3, lease_outcome::lost, "node a died"}));
  REQUIRE(l.apply(part_ended{1, 1, 4, lease_outcome::lost, 70, 0, ""}));
  CHECK(l.job(1)->state == job_state::waiting);
  CHECK(l.job(1)->progress.iterations_done == 40);
  CHECK(l.due(1, 5) == nullptr);
}

TEST_CASE("a job's exit status is the first of its parts' that is not 0") {
  ledger l{two_nodes()};
  REQUIRE(l.apply(accepted(1)));
  REQUIRE(l.apply(granted(1, 1, {{0, 1, {0}}, {1, 1, {0}}})));
  CHECK_FALSE(l.job(1)->exit_code);
  REQUIRE(l.apply(part_ended{1, 0, 3, lease_outcome::failed, 0, 0, "", 3}));
  REQUIRE(l.apply(part_ended{1, 1, 3, lease_outcome::failed, 0, 0, "", 143}));
  CHECK(l.job(1)->exit_code == 3);
}

TEST_CASE("running out of memory raises every memory prediction of the job and is recorded") {
  ledger l{two_nodes()};
  REQUIRE(l.apply(accepted(1)));
  REQUIRE(l.apply(granted(1, 1, {{0, 1, {0}}})));
  REQUIRE(
      l.apply(part_ended{1, 0, 3, lease_outcome::out_of_memory, 0, 41e9, "CUDA out of memory"}));
  const auto* j = l.job(1);
  CHECK(j->state == job_state::waiting);
  CHECK(j->history.factor == Approx(4).epsilon(0.001));  // 10 GB were predicted, 40 were not enough
  REQUIRE(j->memory.size() == 1);
  CHECK(j->memory[0].out_of_memory);
  CHECK(j->memory[0].peak_bytes == 41e9);
}

TEST_CASE("a cancelled job ends as cancelled, whatever else happened to it") {
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

namespace {

/// An entry that the ledger may accept or refuse.
journal_entry any_entry(random_source& random, const ledger& l) {
  const auto job = 1 + random.below(6);
  const auto lease =
      l.next_lease() > 1 && random.chance(0.8) ? 1 + random.below(l.next_lease()) : l.next_lease();
  const auto outcome = static_cast<lease_outcome>(random.below(6));
  switch (random.below(6)) {
    case 0: {
      auto e = accepted(random.chance(0.5) ? l.next_job() : job);
      if (random.chance(0.5)) std::get<job_accepted>(e).owner = "alice";
      return e;
    }
    case 1: {
      std::vector<lease_part> parts;
      for (node_index n = 0; n < 2; ++n)
        if (random.chance(0.6))
          parts.push_back({n, 1, {static_cast<std::uint16_t>(random.below(4))}});
      return granted(l.next_lease(), 1 + random.below(l.next_job()), parts);
    }
    case 2:
      return lease_revoked{lease, 5, outcome, "why"};
    case 3:
      return part_ended{
          lease, static_cast<std::uint32_t>(random.below(2)), 6, outcome, random.below(50), 1e9,
          ""};
    case 4:
      if (auto due = l.due(job, 7 + random.uniform())) return *due;
      return job_ended{1 + random.below(l.next_job()), 7 + random.uniform(), job_state::cancelled,
                       ""};
    default:
      return epoch_begun{l.epoch() + 1 + random.below(2), 8, 77, l.next_lease() + random.below(3)};
  }
}

ledger replay_of(const std::vector<journal_entry>& entries) {
  ledger l{two_nodes()};
  for (const auto& e : entries) {
    auto ok = l.apply(e);
    INFO((ok ? std::string{} : ok.error().text));
    REQUIRE(ok);
  }
  return l;
}

}  // namespace

TEST_CASE("replaying a ledger's accepted entries gives the same ledger, compacted or not") {
  const auto c = two_nodes();
  std::uint64_t forgotten = 0, held = 0, closing = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    random_source random{seed};
    ledger l{c};
    std::vector<journal_entry> written;  // as in a journal that is compacted now and then
    for (int step = 0; step < 80; ++step) {
      const auto e = any_entry(random, l);
      if (l.apply(e)) written.push_back(e);
      for (node_index n = 0; n < 2; ++n) {
        std::uint32_t free = 0;
        for (std::uint16_t d = 0; d < c.nodes[n].gpus; ++d) free += l.holder(n, d) == 0 ? 1 : 0;
        REQUIRE(free == l.idle(n));
      }
      if (!random.chance(0.1)) continue;
      REQUIRE(replay_of(written) == l);
      if (const auto old = l.long_ended(1); !old.jobs.empty()) {
        REQUIRE(l.apply(old));
        forgotten += old.jobs.size();
      }
      held += l.leases().size();
      for (const auto& [id, j] : l.jobs()) closing += l.due(id, 9) ? 1 : 0;
      written = l.snapshot();
      const auto restored = replay_of(written);
      REQUIRE(restored == l);
      // Both accept or refuse the same further entries.
      l = restored;
    }
    REQUIRE(replay_of(written) == l);
  }
  CHECK(forgotten > 100);
  CHECK(held > 100);
  CHECK(closing > 10);
}

TEST_CASE("ledgers that differ in one detail, or in where a job ran, are not equal") {
  const auto after = [](lease_part part, const std::string& detail) {
    ledger l{two_nodes()};
    REQUIRE(l.apply(accepted(1)));
    REQUIRE(l.apply(granted(1, 1, {part})));
    REQUIRE(l.apply(part_ended{1, 0, 3, lease_outcome::succeeded, 100, 0, ""}));
    REQUIRE(l.apply(job_ended{1, 4, job_state::finished, detail}));
    return l;
  };
  const auto l = after({0, 1, {0}}, "as it was");
  CHECK(l == after({0, 1, {0}}, "as it was"));
  CHECK_FALSE(l == after({0, 1, {0}}, "otherwise"));
  CHECK_FALSE(l == after({1, 1, {0}}, "as it was"));
}

TEST_CASE("a copy of a ledger does not change with the original") {
  ledger l{two_nodes()};
  REQUIRE(l.apply(accepted(1)));
  const auto before = l;
  REQUIRE(l.apply(granted(1, 1, {{0, 1, {0, 1}}})));
  CHECK(before.job(1)->state == job_state::waiting);
  CHECK(before.leases().empty());
  CHECK(before.idle(0) == 4);
  CHECK(l.job(1)->state == job_state::running);
  CHECK(l.idle(0) == 2);
}

TEST_CASE("a compacted ledger keeps unfinished jobs and those that ended last") {
  ledger l{two_nodes()};
  for (job_id id = 1; id <= 10; ++id) REQUIRE(l.apply(accepted(id)));
  for (job_id id : {9, 2, 7, 4})
    REQUIRE(l.apply(job_ended{id, 100.0 - static_cast<double>(id), job_state::cancelled, ""}));
  const auto old = l.long_ended(2);
  CHECK(old.jobs == std::vector<job_id>{9, 7});
  REQUIRE(l.apply(old));
  CHECK(l.job(9) == nullptr);
  CHECK(l.job_of_request(9 * 7) == nullptr);
  CHECK(l.jobs().size() == 8);
  CHECK(l.next_job() == 11);
  CHECK_FALSE(l.apply(jobs_forgotten{{1}}));
}

TEST_CASE("a ledger knows the epochs of its journal, and an empty ledger accepts any") {
  ledger l{two_nodes()};
  CHECK(l.knows_epoch(7));  // an empty ledger denies no epoch
  for (const std::uint64_t e : {5, 9}) {
    epoch_begun begun;
    begun.epoch = e;
    REQUIRE(l.apply(begun));
  }
  for (const std::uint64_t e : {1, 5, 9}) CHECK(l.knows_epoch(e));
  for (const std::uint64_t e : {6, 10}) CHECK_FALSE(l.knows_epoch(e));
}

TEST_CASE("a job's completed iterations never exceed its iterations") {
  ledger l{two_nodes()};
  REQUIRE(l.apply(accepted(1)));
  for (const lease_id lease : {1, 2}) {
    REQUIRE(l.apply(granted(lease, 1, {{0, 1, {0}}})));
    REQUIRE(l.apply(part_ended{lease, 0, 3, lease_outcome::lost, 70, 0, ""}));
  }
  CHECK(l.job(1)->progress.iterations_done == 100);
}

TEST_CASE("running out of memory without a prediction leaves the job's predictions unchanged") {
  ledger l{two_nodes()};
  REQUIRE(l.apply(accepted(1)));
  auto g = granted(1, 1, {{0, 1, {0}}});
  std::get<lease_granted>(g).predicted_bytes = 0;
  REQUIRE(l.apply(g));
  REQUIRE(l.apply(part_ended{1, 0, 3, lease_outcome::out_of_memory, 0, 0, ""}));
  CHECK(l.job(1)->history.factor == 1);
  CHECK(l.job(1)->history.bytes_floor == 0);
}
