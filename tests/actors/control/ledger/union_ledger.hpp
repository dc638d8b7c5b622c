#pragma once

#include <catch2/catch.hpp>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "actors/control/ledger/ledger.hpp"
#include "actors/control/ledger/unions.hpp"

// Ledgers with unions of jobs, and with leases that follow others.

namespace troupe::actors::tests {

/// Two nodes, of 4 and of 2 GPUs.
inline cluster two_nodes() {
  cluster c;
  c.gpus.push_back({"A100-40GB", 40, 312, 19.5, 1555, 0.45, 3.67, ""});
  c.datacenters.push_back({"dc1", ""});
  c.nodes.push_back({"a", 0, 0, 4, {}, {}});
  c.nodes.push_back({"b", 0, 0, 2, {}, {}});
  return c;
}

inline job_accepted job_of(job_id id, std::uint64_t iterations) {
  job_spec s;
  s.name = "job";
  s.iterations = iterations;
  s.global_batch = 8;
  s.limits.max_restarts = 1;
  return {id, id * 7, 1, s, "somebody"};
}

inline lease_granted grant_of(lease_id lease, job_id job, std::vector<lease_part> parts,
                              std::optional<lease_id> after = {}) {
  lease_granted g;
  g.lease = lease;
  g.job = job;
  g.at_s = 2;
  g.predicted_bytes = 10e9;
  g.parts = std::move(parts);
  g.after = after;
  return g;
}

/// A ledger that gets one entry after the other. Its snapshot restores it after each of them.
struct union_ledger {
  ledger book{two_nodes()};

  expected<void> say(const journal_entry& e) {
    auto ok = book.apply(e);
    check_snapshot();
    return ok;
  }
  void check_snapshot() const {
    ledger again{two_nodes()};
    for (const auto& e : book.snapshot()) REQUIRE(again.apply(e));
    REQUIRE(again == book);
  }
  /// A union of these jobs, with what each has left.
  job_accepted union_of_jobs(job_id id, merge_kind kind, const std::vector<job_id>& ids) const {
    std::vector<const job_record*> members;
    for (const auto m : ids) members.push_back(book.job(m));
    // Nobody makes a union of one job, and the ledger refuses it, whatever its work.
    const auto spec = members.size() < 2 ? *members.front()->spec : spec_of_union(members, kind);
    job_accepted e{id, 0, 1, spec, ""};
    e.members = actors::union_of(members, kind);
    return e;
  }
  /// Jobs 1 (10 iterations) and 2 (30), and union 3 of both, on GPUs 0 and 1 of node a and 0 of b.
  void run_union(merge_kind kind) {
    REQUIRE(say(job_of(1, 10)));
    REQUIRE(say(job_of(2, 30)));
    REQUIRE(say(union_of_jobs(3, kind, {1, 2})));
    REQUIRE(say(grant_of(1, 3, {{0, 1, {0, 1}}, {1, 1, {0}}})));
  }
  expected<void> end(lease_id lease, std::uint32_t part, lease_outcome how,
                     std::uint64_t iterations = 0) {
    return say(part_ended{lease, part, 5, how, iterations, 0, "what happened"});
  }
  void end_both(lease_outcome how, std::uint64_t iterations = 0) {
    REQUIRE(end(1, 0, how, iterations));
    REQUIRE(end(1, 1, how, iterations));
  }
  /// Records the end that is due, which must be this one.
  void settle(job_id id, job_state as) {
    const auto due = book.due(id, 6);
    REQUIRE(due);
    CHECK(due->final_state == as);
    REQUIRE(say(*due));
  }
  const job_record& job(job_id id) const { return *book.job(id); }
  job_state state(job_id id) const { return job(id).state; }
};

inline constexpr std::array kinds{merge_kind::shared, merge_kind::adapters};

}  // namespace troupe::actors::tests
