#include <catch2/catch.hpp>

#include "actors/control/ledger/ledger.hpp"
#include "actors/control/scheduling/pending_starts.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

/// A node of 40 GB GPUs and one of 16 GB.
cluster two_types() {
  cluster c;
  c.gpus.push_back({"A100-40GB", 40, 312, 19.5, 1555, 0.45, 3.67, ""});
  c.gpus.push_back({"V100-16GB", 16, 125, 15.7, 900, 0.45, 1.5, ""});
  c.datacenters.push_back({"dc1", ""});
  c.nodes.push_back({"a", 0, 0, 4, {}, {}});
  c.nodes.push_back({"b", 0, 1, 2, {}, {}});
  return c;
}

/// A ledger that gets one entry after the other.
struct scripted_ledger {
  ledger book{two_types()};

  expected<void> say(const journal_entry& e) { return book.apply(e); }
  void accept(job_id id, std::uint32_t max_restarts = 3, std::uint64_t request = 0) {
    job_spec s;
    s.name = "job";
    s.iterations = 100;
    s.limits.max_restarts = max_restarts;
    REQUIRE(say(job_accepted{id, request ? request : id * 7, 1, s, "somebody"}));
  }
  lease_granted grant_of(lease_id lease, job_id job, std::vector<lease_part> parts,
                         double predicted_gb = 10, double at_s = 2) const {
    lease_granted g;
    g.lease = lease;
    g.job = job;
    g.at_s = at_s;
    g.predicted_bytes = predicted_gb * 1e9;
    g.parts = std::move(parts);
    return g;
  }
  void grant(lease_id lease, job_id job, std::vector<lease_part> parts, double predicted_gb = 10,
             double at_s = 2) {
    REQUIRE(say(grant_of(lease, job, std::move(parts), predicted_gb, at_s)));
  }
  void end(lease_id lease, std::uint32_t part, lease_outcome how, std::uint64_t iterations = 0,
           double peak_gb = 0) {
    REQUIRE(say(part_ended{lease, part, 3, how, iterations, peak_gb * 1e9, "what happened"}));
  }
  const job_record& job(job_id id) const { return *book.job(id); }
};

bool refused(const expected<void>& e) {
  return !e;
}

}  // namespace

TEST_CASE("an epoch begins once, after those before it") {
  scripted_ledger t;
  REQUIRE(t.say(epoch_begun{5, 1, 8, 1}));
  CHECK(refused(t.say(epoch_begun{5, 1, 8, 1})));
  CHECK(refused(t.say(epoch_begun{4, 1, 8, 1})));
  REQUIRE(t.say(epoch_begun{7, 1, 8, 1}));
  CHECK(t.book.epoch() == 7);
  for (const std::uint64_t e : {1, 5, 7}) CHECK(t.book.knows_epoch(e));
  for (const std::uint64_t e : {6, 8}) CHECK_FALSE(t.book.knows_epoch(e));
}

TEST_CASE("of very many epochs the latest are known, and none before them can be denied") {
  scripted_ledger t;
  for (std::uint64_t e = 1; e <= 4097; ++e) REQUIRE(t.say(epoch_begun{2 * e, 1, 8, 1}));
  CHECK(t.book.knows_epoch(3));
  CHECK_FALSE(t.book.knows_epoch(5));
  CHECK(t.book.knows_epoch(6));
}

TEST_CASE("an epoch may begin with later leases, and takes none back") {
  scripted_ledger t;
  REQUIRE(t.say(epoch_begun{5, 1, 8, 50}));
  CHECK(t.book.next_lease() == 50);
  REQUIRE(t.say(epoch_begun{6, 1, 8, 20}));
  CHECK(t.book.next_lease() == 50);
}

TEST_CASE("a lease is kept with the parts that have ended, and that it was revoked") {
  scripted_ledger t;
  t.accept(1);
  t.grant(1, 1, {{0, 1, {0}}, {1, 1, {0}}});
  CHECK_FALSE(t.book.lease(1)->revoked);
  REQUIRE(t.say(lease_revoked{1, 3, lease_outcome::preempted, "makes room"}));
  CHECK(t.book.lease(1)->revoked);
  t.end(1, 1, lease_outcome::succeeded, 100);
  const auto all = t.book.snapshot();
  REQUIRE(std::holds_alternative<lease_kept>(all.back()));
  const auto& kept = std::get<lease_kept>(all.back());
  CHECK(kept.revoked);
  CHECK(kept.ended == std::vector<std::uint32_t>{1});
  CHECK(kept.succeeded == std::vector<std::uint32_t>{1});
}

TEST_CASE("a job has begun when it was first granted GPUs") {
  scripted_ledger t;
  t.accept(1);
  t.grant(1, 1, {{0, 1, {0}}}, 10, 5);
  CHECK(t.job(1).started_s == 5);
  t.end(1, 0, lease_outcome::preempted, 10);
  t.grant(2, 1, {{0, 1, {0}}}, 10, 9);
  CHECK(t.job(1).started_s == 5);
  CHECK(t.job(1).progress.attempts == 2);
  CHECK(t.book.take_lowest(0, 2) == std::vector<std::uint16_t>{1, 2});
  CHECK(t.book.take_lowest(0, 3) == std::vector<std::uint16_t>{1, 2, 3});
}

TEST_CASE("of a lease whose parts end differently the first failure counts") {
  scripted_ledger t;
  t.accept(1);
  t.grant(1, 1, {{0, 1, {0}}, {1, 1, {0}}});
  t.end(1, 0, lease_outcome::failed);
  t.end(1, 1, lease_outcome::out_of_memory);
  REQUIRE(t.book.due(1, 4));
  CHECK(t.book.due(1, 4)->final_state == job_state::failed);
  // That a part has succeeded does not make up for the other's failure, or its preemption.
  t.accept(2);
  t.grant(2, 2, {{0, 1, {0}}, {1, 1, {0}}});
  t.end(2, 1, lease_outcome::preempted, 40);
  t.end(2, 0, lease_outcome::succeeded, 100);
  CHECK(t.job(2).state == job_state::waiting);
  CHECK(t.job(2).progress.iterations_done == 40);
}

TEST_CASE("what an attempt was predicted and measured to need is remembered if either is known") {
  scripted_ledger t;
  t.accept(1);
  t.grant(1, 1, {{0, 1, {0}}});
  t.end(1, 0, lease_outcome::preempted, 10);
  CHECK(t.job(1).memory.empty());
  t.grant(2, 1, {{0, 1, {0}}});
  t.end(2, 0, lease_outcome::preempted, 10, 12);
  REQUIRE(t.job(1).memory.size() == 1);
  CHECK(t.job(1).memory[0].peak_bytes == 12e9);
  CHECK_FALSE(t.job(1).memory[0].out_of_memory);
  CHECK(t.job(1).history.out_of_memory == 0);
  CHECK(t.job(1).history.factor == 1);
  t.grant(3, 1, {{0, 1, {0}}});
  t.end(3, 0, lease_outcome::out_of_memory);
  CHECK(t.job(1).memory.size() == 2);
  CHECK(t.job(1).history.out_of_memory == 1);
}

TEST_CASE("the smallest GPU of a lease says how much memory was too little") {
  scripted_ledger t;
  t.accept(1);
  t.grant(1, 1, {{0, 1, {0}}, {1, 1, {0}}}, 8);
  for (const auto p : {0u, 1u}) t.end(1, p, lease_outcome::out_of_memory);
  CHECK(t.job(1).history.factor == Approx(2).epsilon(0.001));  // 8 GB were predicted, 16 did not do
  CHECK(t.job(1).history.bytes_floor == 0);
}

TEST_CASE("of the last attempt that ran out of memory its GPUs are known, also from a snapshot") {
  scripted_ledger t;
  t.accept(1);
  CHECK(t.job(1).history.tried_gpus == 0);
  CHECK(t.job(1).history.tried_bytes == 0);
  t.grant(1, 1, {{0, 1, {0, 1}}, {1, 1, {0}}});
  for (const auto p : {0u, 1u}) t.end(1, p, lease_outcome::out_of_memory);
  CHECK(t.job(1).history.tried_gpus == 3);
  CHECK(t.job(1).history.tried_bytes == 16e9);
  t.grant(2, 1, {{0, 1, {0, 1, 2, 3}}});
  t.end(2, 0, lease_outcome::preempted, 10);
  CHECK(t.job(1).history.tried_gpus == 3);
  scripted_ledger again;
  for (const auto& e : t.book.snapshot()) REQUIRE(again.say(e));
  CHECK(again.job(1).history.tried_gpus == 3);
  CHECK(again.job(1).history.tried_bytes == 16e9);
  again.grant(3, 1, {{0, 1, {0, 1, 2, 3}}});
  again.end(3, 0, lease_outcome::out_of_memory);
  CHECK(again.job(1).history.tried_gpus == 4);
  CHECK(again.job(1).history.tried_bytes == 40e9);
}

TEST_CASE("if no prediction fitted, the largest that did not do is a floor for the next") {
  scripted_ledger t;
  t.accept(1);
  lease_id lease = 0;
  for (const double gb : {40.0, 50.0, 45.0}) {
    t.grant(++lease, 1, {{0, 1, {0}}}, gb);
    t.end(lease, 0, lease_outcome::out_of_memory);
    CHECK(t.job(1).history.factor == 1);
    CHECK(t.job(1).history.bytes_floor == (gb > 40 ? 50e9 : 40e9));
  }
}

TEST_CASE("a job is given up after its restarts in a row without progress, lost nodes alone") {
  const auto lives = [](const std::vector<std::pair<lease_outcome, std::uint64_t>>& ends) {
    scripted_ledger t;
    t.accept(1, 1);
    lease_id lease = 0;
    for (const auto& [how, iterations] : ends) {
      if (t.job(1).state != job_state::waiting) return false;
      t.grant(++lease, 1, {{0, 1, {0}}});
      t.end(lease, 0, how, iterations);
    }
    return t.job(1).state == job_state::waiting;
  };
  using enum lease_outcome;
  CHECK(lives({{lost, 0}}));
  CHECK_FALSE(lives({{lost, 0}, {lost, 0}}));
  CHECK(lives({{lost, 0}, {lost, 5}, {lost, 0}}));
  CHECK(lives({{lost, 0}, {preempted, 0}, {preempted, 0}}));
  CHECK_FALSE(lives({{failed, 0}}));
}

TEST_CASE("a job that has ended has done all its iterations only if it finished") {
  scripted_ledger t;
  for (const job_id id : {1, 2}) {
    t.accept(id);
    t.grant(id, id, {{0, 1, {0}}});
    t.end(id, 0, id == 1 ? lease_outcome::succeeded : lease_outcome::failed, 30);
    REQUIRE(t.say(*t.book.due(id, 4)));
  }
  CHECK(t.job(1).progress.iterations_done == 100);
  CHECK(t.job(2).progress.iterations_done == 0);
}

TEST_CASE("that a job was suspended explains it until it is resumed, and only while it waits") {
  scripted_ledger t;
  t.accept(1);
  const auto suspend = [&](bool suspended, std::uint64_t request) {
    return t.say(job_suspended{1, 3, suspended, "somebody", request});
  };
  t.grant(1, 1, {{0, 1, {0}}});
  REQUIRE(suspend(true, 100));
  REQUIRE(t.say(lease_revoked{1, 3, lease_outcome::preempted, "suspended by somebody"}));
  CHECK(t.book.lease(1)->detail == "suspended by somebody");
  t.end(1, 0, lease_outcome::preempted, 5);
  CHECK(t.job(1).suspended);
  CHECK(t.job(1).detail == "suspended by somebody");
  REQUIRE(suspend(true, 101));  // again
  CHECK(t.job(1).detail == "suspended by somebody");
  REQUIRE(suspend(false, 102));
  CHECK(t.job(1).detail.empty());
  CHECK(t.job(1).suspensions == std::vector<std::uint64_t>{100, 101, 102});
  // Resumed before it has stopped: its lease has no mark of the pause any more.
  t.grant(2, 1, {{0, 1, {0}}});
  REQUIRE(suspend(true, 103));
  REQUIRE(t.say(lease_revoked{2, 3, lease_outcome::preempted, "suspended by somebody"}));
  REQUIRE(suspend(false, 104));
  CHECK(t.book.lease(2)->detail.empty());
  t.end(2, 0, lease_outcome::preempted, 5);
  // A failure explains itself whether the job is suspended or not.
  t.grant(3, 1, {{0, 1, {0}}, {1, 1, {0}}});
  t.end(3, 0, lease_outcome::lost);
  REQUIRE(suspend(true, 105));
  REQUIRE(suspend(false, 106));
  CHECK(t.book.lease(3)->detail == "what happened");
  t.end(3, 1, lease_outcome::lost);
  REQUIRE(suspend(false, 107));  // it was not suspended
  CHECK(t.job(1).detail == "what happened");
  for (std::uint64_t r = 200; r < 300; ++r) REQUIRE(suspend(r % 2 == 0, r));
  CHECK(t.job(1).suspensions.size() == 64);
  CHECK(t.job(1).suspensions.back() == 299);
}

TEST_CASE("a job that is not there, or that has ended, is not suspended") {
  scripted_ledger t;
  t.accept(1);
  CHECK(refused(t.say(job_suspended{2, 3, true, "somebody", 1})));
  REQUIRE(t.say(job_ended{1, 3, job_state::cancelled, ""}));
  CHECK(refused(t.say(job_suspended{1, 3, true, "somebody", 1})));
}

TEST_CASE("jobs that ended first are forgotten, and their request may be another's") {
  scripted_ledger t;
  for (const job_id id : {1, 2, 3}) {
    t.accept(id);
    if (id < 3)
      REQUIRE(t.say(job_ended{id, 10.0 - static_cast<double>(id), job_state::failed, ""}));
  }
  CHECK(t.book.long_ended(2).jobs.empty());
  CHECK(t.book.long_ended(3).jobs.empty());
  CHECK(t.book.long_ended(1).jobs == std::vector<job_id>{2});
  t.accept(4, 3, 2 * 7);  // the request of job 2, once more
  CHECK(refused(t.say(jobs_forgotten{{3}})));
  REQUIRE(t.say(jobs_forgotten{{1, 2}}));
  CHECK(t.book.job_of_request(7) == nullptr);
  REQUIRE(t.book.job_of_request(14));
  CHECK(t.book.job_of_request(14)->id == 4);
}

TEST_CASE("a snapshot that contradicts itself is refused entry by entry") {
  const auto begun = [] {
    scripted_ledger t;
    REQUIRE(t.say(snapshot_begun{{3, 5}, 8, 3, 3}));
    return t;
  };
  {
    scripted_ledger t;
    REQUIRE(t.say(epoch_begun{5, 1, 8, 1}));
    CHECK(refused(t.say(snapshot_begun{{3, 5}, 8, 3, 3})));
    scripted_ledger with_job;
    with_job.accept(1);
    CHECK(refused(with_job.say(snapshot_begun{{3, 5}, 8, 3, 3})));
    CHECK(refused(scripted_ledger{}.say(snapshot_begun{{5, 3}, 8, 3, 3})));
  }
  job_kept job;
  job.job = 3;
  auto t = begun();
  CHECK(refused(t.say(job)));  // jobs 1 and 2 are numbered
  job.job = 2;
  REQUIRE(t.say(job));
  CHECK(refused(t.say(job)));
  job.job = 1;
  job.lost_parts = {{0, 1, {0}}};
  job.lost_succeeded = {1};
  CHECK(refused(t.say(job)));
  job.lost_succeeded = {0};
  REQUIRE(t.say(job));
  CHECK(t.job(1).lost_succeeded == std::vector<bool>{true});
  CHECK(t.book.unfinished() == 2);

  lease_kept lease;
  lease.granted = t.grant_of(3, 2, {{0, 1, {0}}, {1, 1, {0}}});
  CHECK(refused(t.say(lease)));
  lease.granted.lease = 1;
  lease.granted.job = 5;
  CHECK(refused(t.say(lease)));
  lease.granted.job = 2;
  lease.ended = {2};
  CHECK(refused(t.say(lease)));
  lease.ended = {0};
  lease.succeeded = {2};
  CHECK(refused(t.say(lease)));
  lease.succeeded = {0};
  REQUIRE(t.say(lease));
  CHECK(refused(t.say(lease)));
  // The part that has ended holds no GPU.
  CHECK(t.book.idle(0) == 4);
  CHECK(t.book.idle(1) == 1);
}

TEST_CASE("what waits for its GPUs keeps them from others, and has no hope if too few come free") {
  const auto c = two_types();
  planners::idle_index idle{c};
  idle.set_idle(0, 1);
  idle.set_idle(1, 2);
  pending_starts starts;
  planners::decision d;
  d.job = 1;
  d.how.data_parallel = 2;
  d.where = {{0, 2}};
  starts.add(d);
  std::optional<planners::idle_index> room;
  const auto& rest = starts.rest(idle, room);
  CHECK(rest.idle(0) == 0);
  CHECK(rest.idle(1) == 2);
  REQUIRE(starts.find(1));
  CHECK(starts.find(1)->where == d.where);
  CHECK(starts.find(2) == nullptr);
  CHECK(starts.possible(c, idle).empty());
  CHECK(starts.hopeless(idle, {0, 2}) == std::vector<job_id>{1});
  CHECK(starts.hopeless(idle, {1, 0}).empty());
  CHECK(starts.hopeless(idle, {2, 0}).empty());
  // Two that each fit alone, and not together.
  idle.set_idle(0, 3);
  d.job = 2;
  starts.add(d);
  CHECK(starts.possible(c, idle).size() == 1);
  idle.set_idle(0, 4);
  CHECK(starts.possible(c, idle).size() == 2);
}
