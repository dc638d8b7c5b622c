#include "actors/control/ledger/union_ledger.hpp"

#include <algorithm>

#include "messages/base/random.hpp"

// Leases that follow others on their GPUs, and any entries that a journal might have.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

namespace {

/// Lease 1 of job 1 on all GPUs of node a and one of b; job 2 waits.
union_ledger held_by_one() {
  union_ledger t;
  REQUIRE(t.say(job_of(1, 10)));
  REQUIRE(t.say(job_of(2, 10)));
  REQUIRE(t.say(job_of(3, 10)));
  REQUIRE(t.say(grant_of(1, 1, {{0, 1, {0, 1, 2, 3}}, {1, 1, {0}}})));
  return t;
}

}  // namespace

TEST_CASE("a GPU passes from a lease to its successor when the part there ends") {
  auto t = held_by_one();
  CHECK(t.book.to_succeed(0, 1) == 4);
  CHECK(t.book.take_lowest(0, 2, 1) == std::vector<std::uint16_t>{0, 1});
  CHECK(t.book.take_lowest(1, 2, 1) == std::vector<std::uint16_t>{0, 1});  // the free one, too
  REQUIRE(t.say(grant_of(2, 2, {{0, 1, {0, 1}}, {1, 1, {0, 1}}}, 1)));
  CHECK(t.state(2) == job_state::running);
  for (const std::uint16_t gpu : {0, 1}) {
    CHECK(t.book.holder(0, gpu) == 1);
    CHECK(t.book.successor(0, gpu) == 2);
  }
  CHECK(t.book.successor(0, 2) == 0);
  CHECK(t.book.holder(1, 0) == 1);
  CHECK(t.book.successor(1, 0) == 2);
  CHECK(t.book.holder(1, 1) == 2);  // it was free
  CHECK(t.book.successor(1, 1) == 0);
  CHECK(t.book.to_succeed(0, 1) == 2);
  CHECK(t.book.to_succeed(1, 1) == 0);
  CHECK(t.book.idle(0) == 0);
  REQUIRE(t.end(1, 0, lease_outcome::succeeded, 10));
  for (const std::uint16_t gpu : {0, 1}) {
    CHECK(t.book.holder(0, gpu) == 2);
    CHECK(t.book.successor(0, gpu) == 0);
  }
  CHECK(t.book.idle(0) == 2);       // the two that nobody waits for
  CHECK(t.book.holder(1, 0) == 1);  // its part there goes on
  REQUIRE(t.end(1, 1, lease_outcome::succeeded, 10));
  CHECK(t.book.holder(1, 0) == 2);
  CHECK(t.book.lease(1) == nullptr);
  REQUIRE(t.end(2, 0, lease_outcome::succeeded, 10));
  REQUIRE(t.end(2, 1, lease_outcome::succeeded, 10));
  CHECK(t.book.idle(0) == 4);
  CHECK(t.book.idle(1) == 2);
}

TEST_CASE("a successor gets its GPUs however the lease before it ends") {
  for (const auto how : {lease_outcome::failed, lease_outcome::lost, lease_outcome::preempted,
                         lease_outcome::cancelled, lease_outcome::out_of_memory}) {
    auto t = held_by_one();
    REQUIRE(t.say(grant_of(2, 2, {{0, 1, {0, 1}}}, 1)));
    REQUIRE(t.end(1, 0, how));
    REQUIRE(t.end(1, 1, how));
    CHECK(t.book.holder(0, 0) == 2);
    CHECK(t.state(2) == job_state::running);
    CHECK(t.book.idle(0) == 2);
  }
}

TEST_CASE("a successor that ends first leaves the GPU to its holder") {
  auto t = held_by_one();
  REQUIRE(t.say(grant_of(2, 2, {{0, 1, {0, 1}}, {1, 1, {1}}}, 1)));
  REQUIRE(t.say(lease_revoked{2, 3, lease_outcome::preempted, "makes room"}));
  REQUIRE(t.end(2, 0, lease_outcome::preempted));
  for (const std::uint16_t gpu : {0, 1}) {
    CHECK(t.book.holder(0, gpu) == 1);
    CHECK(t.book.successor(0, gpu) == 0);
  }
  CHECK(t.book.to_succeed(0, 1) == 4);
  REQUIRE(t.end(2, 1, lease_outcome::preempted));
  CHECK(t.state(2) == job_state::waiting);
  CHECK(t.book.idle(1) == 1);
  // Another one may follow now.
  REQUIRE(t.say(grant_of(3, 3, {{0, 1, {1, 2}}}, 1)));
  REQUIRE(t.end(1, 0, lease_outcome::succeeded, 10));
  CHECK(t.book.idle(0) == 2);
  CHECK(t.book.holder(0, 1) == 3);
}

TEST_CASE("a GPU has one successor at most, and only of the lease that holds it") {
  auto t = held_by_one();
  REQUIRE(t.say(grant_of(2, 2, {{0, 1, {0}}}, 1)));
  const auto before = t.book;
  CHECK_FALSE(t.say(grant_of(3, 3, {{0, 1, {0}}}, 1)));     // it has one
  CHECK_FALSE(t.say(grant_of(3, 3, {{0, 1, {1}}})));        // it is held
  CHECK_FALSE(t.say(grant_of(3, 3, {{0, 1, {1}}}, 2)));     // by another one
  CHECK_FALSE(t.say(grant_of(3, 3, {{0, 1, {0}}}, 2)));     // which does not hold it yet
  CHECK_FALSE(t.say(grant_of(3, 3, {{0, 1, {1, 4}}}, 1)));  // the node has four
  CHECK(t.book == before);
  REQUIRE(t.say(grant_of(3, 3, {{0, 1, {1}}}, 1)));
  REQUIRE(t.end(1, 0, lease_outcome::succeeded, 10));
  CHECK(t.book.holder(0, 0) == 2);
  CHECK(t.book.holder(0, 1) == 3);
}

TEST_CASE("a lease may follow one that has followed another") {
  auto t = held_by_one();
  REQUIRE(t.say(grant_of(2, 2, {{0, 1, {0}}}, 1)));
  REQUIRE(t.end(1, 0, lease_outcome::succeeded, 10));
  REQUIRE(t.say(grant_of(3, 3, {{0, 1, {0, 1}}}, 2)));
  CHECK(t.book.holder(0, 0) == 2);
  CHECK(t.book.successor(0, 0) == 3);
  CHECK(t.book.holder(0, 1) == 3);
  REQUIRE(t.end(2, 0, lease_outcome::succeeded, 10));
  CHECK(t.book.holder(0, 0) == 3);
}

TEST_CASE("a union may follow a job, and a job a union") {
  union_ledger t;
  t.run_union(merge_kind::shared);
  REQUIRE(t.say(job_of(4, 10)));
  REQUIRE(t.say(grant_of(2, 4, {{0, 1, {0, 1}}}, 1)));
  t.end_both(lease_outcome::out_of_memory);
  t.settle(3, job_state::cancelled);
  CHECK(t.book.holder(0, 0) == 2);
  REQUIRE(t.say(t.union_of_jobs(5, merge_kind::shared, {1, 2})));
  REQUIRE(t.say(grant_of(3, 5, {{0, 1, {0}}}, 2)));
  CHECK(t.job(1).in == 5u);
  REQUIRE(t.end(2, 0, lease_outcome::succeeded, 10));
  CHECK(t.book.holder(0, 0) == 3);
  CHECK(t.book.idle(0) == 3);
}

// -- anything

namespace {

template <class Map>
std::uint64_t some_key(random_source& r, const Map& all) {
  auto at = all.begin();
  for (auto skip = r.below(all.size()); skip > 0; --skip) ++at;
  return (*at).first;
}

/// Mostly one of those of which something can become: a waiting union, a waiting job, a member.
job_id some_job(random_source& r, const ledger& book) {
  std::vector<job_id> unions, waiting, members;
  for (const auto& [id, j] : book.jobs()) {
    if (j.in) members.push_back(id);
    if (j.state == job_state::waiting) (j.members ? unions : waiting).push_back(id);
  }
  const std::vector<job_id>* lists[] = {&unions, &waiting, &members};
  const auto& all = *lists[r.below(3)];
  return all.empty() || r.chance(0.1) ? some_key(r, book.jobs()) : all[r.below(all.size())];
}

lease_granted any_grant(random_source& r, const ledger& book) {
  const auto n = static_cast<node_index>(r.below(2));
  lease_part part{n, 1, {static_cast<std::uint16_t>(r.below(n == 0 ? 4 : 2))}};
  if (n == 0 && r.chance(0.5) && part.devices[0] < 3)
    part.devices.push_back(static_cast<std::uint16_t>(part.devices[0] + 1));
  std::optional<lease_id> after;
  if (!book.leases().empty() && r.chance(0.6)) after = some_key(r, book.leases());
  return grant_of(book.next_lease(), some_job(r, book), {part}, after);
}

journal_entry any_entry(random_source& r, const union_ledger& t) {
  const auto& book = t.book;
  const auto outcome = static_cast<lease_outcome>(r.below(6));
  if (book.jobs().size() < 3) return job_of(book.next_job(), 1 + r.below(50));
  const auto job = some_job(r, book);
  switch (r.below(8)) {
    case 0:
      return job_of(book.next_job(), 1 + r.below(50));
    case 1: {
      std::vector<job_id> ids;
      for (const auto& [id, j] : book.jobs())
        if (r.chance(j.state == job_state::waiting && !j.members ? 0.6 : 0.02) && ids.size() < 3)
          ids.push_back(id);
      if (ids.empty()) ids = {job};
      return t.union_of_jobs(book.next_job(), kinds[r.below(2)], ids);
    }
    case 2:
      return member_ended{job, 4, outcome, r.below(5), "left"};
    case 3:
      if (const auto due = book.due(job, 6)) return *due;
      return job_ended{job, 6, job_state::cancelled, "ended"};
    case 4:
      if (!book.leases().empty())
        return lease_revoked{some_key(r, book.leases()), 4, outcome, "revoked"};
      [[fallthrough]];
    case 5:
      if (!book.leases().empty())
        return part_ended{some_key(r, book.leases()), 0, 5, outcome, r.below(60), 0, "ended"};
      [[fallthrough]];
    default:
      return any_grant(r, book);
  }
}

/// The invariants of every state.
void check_all(const ledger& book) {
  for (const auto& [id, j] : book.jobs()) {
    if (!j.in) continue;
    const auto* all = book.job(*j.in);
    REQUIRE(all);
    REQUIRE(all->members);
    REQUIRE(std::ranges::count(all->members->jobs, id) == 1);
    REQUIRE(all->lease == j.lease);
    REQUIRE(all->state == j.state);
    REQUIRE(book.lease_of(j) != nullptr);
    REQUIRE(book.lease_of(j)->granted.job == all->id);
  }
  for (const auto& [id, l] : book.leases()) {
    REQUIRE(book.job(l.granted.job)->lease == id);
    for (const auto gpu : l.granted.parts[0].devices) {
      const auto n = l.granted.parts[0].node;
      const bool holds = book.holder(n, gpu) == id, follows = book.successor(n, gpu) == id;
      REQUIRE(holds != follows);
    }
  }
}

}  // namespace

TEST_CASE("whatever entries come, members are in one union, GPUs have one holder and successor") {
  std::size_t unions = 0, followed = 0, left = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    random_source r{seed};
    union_ledger t;
    for (int step = 0; step < 80; ++step) {
      const auto e = any_entry(r, t);
      if (!t.say(e)) continue;
      check_all(t.book);
      if (const auto* g = std::get_if<lease_granted>(&e)) {
        unions += t.job(g->job).members.has_value();
        for (const auto gpu : g->parts[0].devices)
          followed += t.book.successor(g->parts[0].node, gpu) != 0;
      }
      left += std::holds_alternative<member_ended>(e);
    }
  }
  CHECK(unions > 100);
  CHECK(followed > 100);
  CHECK(left > 50);
}
