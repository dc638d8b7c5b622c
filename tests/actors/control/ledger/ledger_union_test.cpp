#include "actors/control/ledger/union_ledger.hpp"

// The life of unions by the journal's entries alone.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

TEST_CASE("a union's lease is that of its members, which run in it") {
  union_ledger t;
  REQUIRE(t.say(job_of(1, 10)));
  REQUIRE(t.say(job_of(2, 30)));
  REQUIRE(t.say(t.union_of_jobs(3, merge_kind::shared, {1, 2})));
  CHECK(t.book.next_job() == 4);
  CHECK(t.book.job_of_request(0) == nullptr);  // nobody has submitted it
  for (const job_id id : {1, 2, 3}) CHECK(t.state(id) == job_state::waiting);
  for (const job_id id : {1, 2}) CHECK_FALSE(t.job(id).in);
  REQUIRE(t.say(grant_of(1, 3, {{0, 1, {0, 1}}, {1, 1, {0}}})));
  for (const job_id id : {1, 2, 3}) {
    INFO(id);
    CHECK(t.state(id) == job_state::running);
    CHECK(t.job(id).lease == 1);
    CHECK(t.job(id).progress.attempts == 1);
    CHECK(t.job(id).where == allocation{{0, 2}, {1, 1}});
    CHECK(t.job(id).tries.size() == 1);
    CHECK(t.book.lease_of(t.job(id)) == t.book.lease(1));
  }
  for (const job_id id : {1, 2}) CHECK(t.job(id).in == 3u);
  CHECK_FALSE(t.job(3).in);
  CHECK(merged_with(t.book, t.job(1)) == std::vector<job_id>{2});
  CHECK(merged_with_text(t.book, t.job(2)) == "merged with 1");
  CHECK(merged_with(t.book, t.job(3)).empty());
}

TEST_CASE("a union that succeeds ends all of its members as finished") {
  for (const auto kind : kinds) {
    union_ledger t;
    t.run_union(kind);
    t.end_both(lease_outcome::succeeded, t.job(3).spec->iterations);
    for (const job_id id : {1, 2, 3}) {
      CHECK(t.state(id) == job_state::stopping);
      CHECK_FALSE(t.job(id).in);
      t.settle(id, job_state::finished);
      CHECK(t.job(id).progress.iterations_done == t.job(id).spec->iterations);
    }
    CHECK(t.book.unfinished() == 0);
    CHECK(t.book.leases().empty());
    CHECK(t.book.idle(0) == 4);
  }
}

TEST_CASE("members whose union is preempted or lost wait again with their share of its progress") {
  for (const auto how : {lease_outcome::preempted, lease_outcome::lost}) {
    union_ledger shared;
    shared.run_union(merge_kind::shared);
    CHECK(shared.job(3).spec->iterations == 30);
    shared.end_both(how, 15);
    CHECK(shared.job(1).progress.iterations_done == 5);
    CHECK(shared.job(2).progress.iterations_done == 15);
    union_ledger adapters;
    adapters.run_union(merge_kind::adapters);
    CHECK(adapters.job(3).spec->iterations == 40);
    adapters.end_both(how, 16);  // eight rounds
    CHECK(adapters.job(1).progress.iterations_done == 8);
    CHECK(adapters.job(2).progress.iterations_done == 8);
    for (auto* t : {&shared, &adapters}) {
      for (const job_id id : {1, 2}) {
        CHECK(t->state(id) == job_state::waiting);
        CHECK_FALSE(t->job(id).in);
        CHECK_FALSE(t->job(id).history.alone);
        CHECK(t->job(id).detail == "what happened");
        CHECK(t->book.lease_of(t->job(id)) == nullptr);
        CHECK(t->job(id).progress.losses == 0);
      }
      t->settle(3, job_state::cancelled);
      CHECK(t->book.unfinished() == 2);
    }
  }
}

TEST_CASE("a member goes on from what it has done in an earlier union") {
  union_ledger t;
  t.run_union(merge_kind::shared);
  t.end_both(lease_outcome::preempted, 15);
  t.settle(3, job_state::cancelled);
  REQUIRE(t.say(t.union_of_jobs(4, merge_kind::shared, {1, 2})));
  CHECK(t.job(4).spec->iterations == 15);
  REQUIRE(t.say(grant_of(2, 4, {{0, 1, {0}}})));
  CHECK(t.job(1).progress.attempts == 2);
  CHECK(t.job(1).in == 4u);
  REQUIRE(t.end(2, 0, lease_outcome::preempted, 9));  // three fifths
  CHECK(t.job(1).progress.iterations_done == 8);
  CHECK(t.job(2).progress.iterations_done == 24);
}

TEST_CASE("members of a union that loses its nodes without progress count the loss each") {
  union_ledger t;
  t.run_union(merge_kind::shared);
  t.end_both(lease_outcome::lost, 0);
  for (const job_id id : {1, 2}) {
    CHECK(t.state(id) == job_state::waiting);
    CHECK(t.job(id).progress.losses == 1);
    CHECK(t.job(id).lost_parts.empty());  // the union cannot succeed any more
  }
  CHECK(t.book.job_of_lost_lease(1) == nullptr);
  t.settle(3, job_state::cancelled);
  REQUIRE(t.say(t.union_of_jobs(4, merge_kind::shared, {1, 2})));
  REQUIRE(t.say(grant_of(2, 4, {{0, 1, {0}}})));
  REQUIRE(t.end(2, 0, lease_outcome::lost, 0));
  for (const job_id id : {1, 2}) t.settle(id, job_state::failed);
}

TEST_CASE("members of a union that runs out of memory wait, and are to run alone") {
  union_ledger t;
  t.run_union(merge_kind::shared);
  t.end_both(lease_outcome::out_of_memory, 15);
  for (const job_id id : {1, 2}) {
    CHECK(t.state(id) == job_state::waiting);
    CHECK(t.job(id).history.alone);
    CHECK(t.job(id).history.out_of_memory == 1);
    CHECK(t.job(id).history.factor == 1);  // of one job nothing is known
    CHECK(t.job(id).history.bytes_floor == 0);
    CHECK(t.job(id).history.tried_gpus == 0);
    CHECK(t.job(id).memory.empty());
  }
  t.settle(3, job_state::cancelled);
}

TEST_CASE("a union that fails ends its members as failed") {
  union_ledger t;
  t.run_union(merge_kind::adapters);
  REQUIRE(t.end(1, 0, lease_outcome::failed));
  REQUIRE(t.say(lease_revoked{1, 5, lease_outcome::failed, "what happened"}));
  REQUIRE(t.end(1, 1, lease_outcome::failed));
  for (const job_id id : {1, 2}) {
    t.settle(id, job_state::failed);
    CHECK(t.job(id).detail == "what happened");
  }
  t.settle(3, job_state::cancelled);
  CHECK(t.book.unfinished() == 0);
}

TEST_CASE("all members stop when their union's lease is revoked") {
  union_ledger t;
  t.run_union(merge_kind::shared);
  REQUIRE(t.say(lease_revoked{1, 5, lease_outcome::preempted, "requeued", 0, {}, 77}));
  for (const job_id id : {1, 2, 3}) {
    CHECK(t.state(id) == job_state::stopping);
    CHECK(t.job(id).suspensions == std::vector<std::uint64_t>{77});
  }
  t.end_both(lease_outcome::preempted, 3);
  for (const job_id id : {1, 2}) CHECK(t.state(id) == job_state::waiting);
}

TEST_CASE("a member that leaves ends by itself, and the others' shares stay as they were") {
  union_ledger t;
  t.run_union(merge_kind::adapters);
  REQUIRE(t.say(member_ended{1, 4, lease_outcome::succeeded, 10, ""}));
  CHECK(t.state(1) == job_state::stopping);
  CHECK_FALSE(t.job(1).in);
  CHECK(t.book.lease_of(t.job(1)) == nullptr);  // the lease goes on without it
  CHECK(t.state(2) == job_state::running);
  CHECK(merged_with(t.book, t.job(2)).empty());
  t.settle(1, job_state::finished);
  CHECK(t.job(1).progress.ran_s == 2);
  // 20 of 40 iterations were those of ten rounds; the rest is the other one's alone.
  CHECK(iterations_in_union(t.job(3), 2, 20) == 10);
  CHECK(iterations_in_union(t.job(3), 2, 25) == 15);
  CHECK(end_in_union(t.job(3), 1) == 0.5);
  CHECK(end_in_union(t.job(3), 2) == 1);
  t.end_both(lease_outcome::preempted, 25);
  CHECK(t.state(2) == job_state::waiting);
  CHECK(t.job(2).progress.iterations_done == 15);
  CHECK(t.job(1).progress.iterations_done == 10);
  t.settle(3, job_state::cancelled);
}

TEST_CASE("of a shared union that the longest member leaves the others keep their share") {
  union_ledger t;
  t.run_union(merge_kind::shared);
  REQUIRE(t.say(member_ended{2, 4, lease_outcome::cancelled, 0, "cancelled by somebody"}));
  t.settle(2, job_state::cancelled);
  CHECK(t.job(2).detail == "cancelled by somebody");
  REQUIRE(t.say(lease_revoked{1, 4, lease_outcome::preempted, "job 2 left the union"}));
  t.end_both(lease_outcome::preempted, 15);
  CHECK(t.state(1) == job_state::waiting);
  CHECK(t.job(1).progress.iterations_done == 5);
  CHECK(t.job(1).detail == "job 2 left the union");
}

TEST_CASE("a member that leaves to wait may run elsewhere while its union goes on") {
  union_ledger t;
  t.run_union(merge_kind::adapters);
  REQUIRE(t.say(member_ended{1, 4, lease_outcome::preempted, 6, "makes room"}));
  CHECK(t.state(1) == job_state::waiting);
  CHECK(t.job(1).progress.iterations_done == 6);
  REQUIRE(t.say(grant_of(2, 1, {{0, 1, {2}}})));
  CHECK(t.book.lease_of(t.job(1)) == t.book.lease(2));
  // The union's end is not its affair any more.
  t.end_both(lease_outcome::out_of_memory, 20);
  CHECK(t.state(1) == job_state::running);
  CHECK_FALSE(t.job(1).history.alone);
  CHECK(t.job(2).history.alone);
}

TEST_CASE("a union whose members have all left ends with its lease") {
  union_ledger t;
  t.run_union(merge_kind::adapters);
  for (const job_id id : {1, 2}) {
    REQUIRE(t.say(member_ended{id, 4, lease_outcome::cancelled, 0, "cancelled"}));
    t.settle(id, job_state::cancelled);
  }
  CHECK_FALSE(t.say(job_ended{3, 5, job_state::cancelled, ""}));  // it holds GPUs
  REQUIRE(t.say(lease_revoked{1, 5, lease_outcome::cancelled, "all its members have ended"}));
  t.end_both(lease_outcome::cancelled, 2);
  t.settle(3, job_state::cancelled);
  CHECK(t.book.unfinished() == 0);
}

TEST_CASE("a union of jobs that cannot be one contradicts the ledger") {
  union_ledger t;
  for (const job_id id : {1, 2, 3, 4}) REQUIRE(t.say(job_of(id, 10)));
  const auto refused = [&](std::vector<job_id> ids, std::size_t works) {
    auto e = t.union_of_jobs(5, merge_kind::shared, {1, 2});
    e.members->jobs = std::move(ids);
    e.members->work.resize(works);
    const auto before = t.book;
    const bool no = !t.say(e);
    CHECK(t.book == before);
    return no;
  };
  CHECK(refused({}, 0));
  CHECK(refused({1}, 1));
  CHECK(refused({2, 1}, 2));
  CHECK(refused({1, 1}, 2));
  CHECK(refused({1, 9}, 2));     // there is no such job
  CHECK(refused({1, 2}, 1));     // the work of one is missing
  CHECK(refused({1, 2, 3}, 2));  // the same
  REQUIRE(t.say(grant_of(1, 4, {{0, 1, {3}}})));
  CHECK(refused({1, 4}, 2));  // it runs
  REQUIRE(t.say(t.union_of_jobs(5, merge_kind::shared, {1, 2})));
  CHECK_FALSE(t.say(t.union_of_jobs(5, merge_kind::shared, {1, 3})));  // its number is taken
  CHECK(refused({3, 5}, 2));
  auto of_union = t.union_of_jobs(6, merge_kind::shared, {1, 3});
  of_union.members->jobs = {3, 5};  // a union is no member
  CHECK_FALSE(t.say(of_union));
  CHECK_FALSE(t.say(member_ended{1, 4, lease_outcome::succeeded, 0, ""}));  // it is in none yet
  CHECK_FALSE(t.say(member_ended{9, 4, lease_outcome::succeeded, 0, ""}));
}

TEST_CASE("a job runs in one union at most, and neither it nor the union ends while it does") {
  union_ledger t;
  for (const job_id id : {1, 2, 3}) REQUIRE(t.say(job_of(id, 10)));
  REQUIRE(t.say(t.union_of_jobs(4, merge_kind::shared, {1, 2})));
  REQUIRE(t.say(t.union_of_jobs(5, merge_kind::shared, {2, 3})));
  REQUIRE(t.say(grant_of(1, 4, {{0, 1, {0}}})));
  const auto before = t.book;
  CHECK_FALSE(t.say(grant_of(2, 5, {{0, 1, {1}}})));
  CHECK_FALSE(t.say(grant_of(2, 2, {{0, 1, {1}}})));
  CHECK_FALSE(t.say(grant_of(2, 4, {{0, 1, {1}}})));
  CHECK_FALSE(t.say(t.union_of_jobs(6, merge_kind::shared, {2, 3})));
  for (const job_id id : {1, 2, 4}) CHECK_FALSE(t.say(job_ended{id, 5, job_state::cancelled, ""}));
  CHECK_FALSE(t.say(jobs_forgotten{{1}}));
  CHECK(t.book == before);
  REQUIRE(t.say(job_ended{5, 5, job_state::cancelled, "it got no GPUs"}));
  CHECK(t.state(2) == job_state::running);
  CHECK(t.state(3) == job_state::waiting);
  REQUIRE(t.say(member_ended{2, 5, lease_outcome::cancelled, 0, ""}));
  CHECK_FALSE(t.say(member_ended{2, 5, lease_outcome::cancelled, 0, ""}));
}

TEST_CASE("a union one of whose members has ended gets no GPUs") {
  union_ledger t;
  REQUIRE(t.say(job_of(1, 10)));
  REQUIRE(t.say(job_of(2, 10)));
  REQUIRE(t.say(t.union_of_jobs(3, merge_kind::shared, {1, 2})));
  REQUIRE(t.say(job_ended{2, 4, job_state::cancelled, "cancelled"}));
  CHECK_FALSE(t.say(grant_of(1, 3, {{0, 1, {0}}})));
  CHECK(t.state(1) == job_state::waiting);
  CHECK(t.book.idle(0) == 4);
}

TEST_CASE("ended unions are forgotten first, and count for no job that is kept") {
  union_ledger t;
  t.run_union(merge_kind::shared);
  t.end_both(lease_outcome::succeeded, 30);
  for (const job_id id : {1, 2, 3}) t.settle(id, job_state::finished);
  CHECK(t.book.long_ended(2).jobs == std::vector<job_id>{3});
  CHECK(t.book.long_ended(1).jobs == std::vector<job_id>{3, 1});
  REQUIRE(t.say(t.book.long_ended(2)));
  CHECK(t.book.jobs().size() == 2);
  CHECK(t.book.long_ended(2).jobs.empty());
  CHECK(t.book.next_job() == 4);
}
