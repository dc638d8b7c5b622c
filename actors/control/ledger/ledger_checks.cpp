#include <algorithm>
#include <map>

#include "actors/control/ledger/ends.hpp"
#include "actors/control/ledger/ledger.hpp"
#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"
#include "messages/domain/work_kind.hpp"

// The ledger's part about what its jobs, leases and GPUs say of each other. An entry that would
// break it is refused by on(); what is wrong here was recorded all the same, and nodes, policies
// and the next controller would act on it.

namespace troupe::actors {

void ledger::check_job(const job_record& j) const {
  const auto* held = lease_of(j);
  const bool revoked = held && held->revoked;
  const auto* over = closed_.find(j.id);
  TROUPE_INVARIANT(j.id < next_job_, "the numbers of jobs are below the next one");
  TROUPE_INVARIANT(j.lease < next_lease_, "a job's lease has a number that was given");
  TROUPE_INVARIANT((j.state == job_state::running) == (held && !revoked),
                   "a job runs while its lease is held and not revoked");
  TROUPE_INVARIANT((j.state == job_state::stopping) == (revoked || over),
                   "a job is stopping while its lease is revoked, or its end is not recorded yet");
  TROUPE_INVARIANT(!over || !held, "a job whose end is due holds no lease");
  TROUPE_INVARIANT(!j.not_before_s || j.state == job_state::waiting,
                   "only a job that waits has a time before which it is not started");
  TROUPE_INVARIANT(j.ended_s == 0 || is_final(j.state), "a job with a time of its end has ended");
  TROUPE_INVARIANT(!j.in || held, "a job is in a union while that holds a lease");
  check_history(j);
  if (held) check_held(j, *held);
  if (j.members) {
    TROUPE_INVARIANT(!j.in, "a union is a member of no other");
    TROUPE_INVARIANT(j.members->jobs.size() == j.members->work.size(),
                     "a union knows the work of each member");
  }
  const auto* lost = j.lost_parts.empty() ? nullptr : lost_.find(j.lease);
  TROUPE_INVARIANT(j.lost_parts.empty() || (lost && *lost == j.id),
                   "a lost lease leads to the job that waits since");
  TROUPE_INVARIANT(j.lost_parts.empty() || j.state == job_state::waiting,
                   "the parts of a lost lease are kept while its job waits");
  TROUPE_INVARIANT(j.lost_parts.size() == j.lost_succeeded.size(),
                   "each part of a lost lease has succeeded or not");
}

/// The traces of its attempts.
void ledger::check_history(const job_record& j) const {
  TROUPE_INVARIANT(j.tries.size() <= j.progress.attempts, "each attempt is counted");
  TROUPE_INVARIANT(j.tries.empty() || j.tries.back().lease == j.lease,
                   "a job's last attempt is that of its present or last lease");
  TROUPE_INVARIANT(j.progress.losses <= j.progress.attempts,
                   "attempts that lost their node are among all attempts");
  TROUPE_INVARIANT(j.progress.retried <= j.progress.attempts,
                   "attempts that failed are among all attempts");
  TROUPE_INVARIANT(j.history.out_of_memory <= j.progress.attempts,
                   "attempts that ran out of memory are among all attempts");
  TROUPE_INVARIANT(j.history.factor >= 1, "no job is believed to need less than was predicted");
  TROUPE_INVARIANT(j.history.bytes_floor >= 0, "no plan needs less than nothing");
  TROUPE_INVARIANT(j.progress.ran_s >= 0, "the time that a job has run does not fall below zero");
  TROUPE_INVARIANT(j.suspensions.size() <= max_suspensions,
                   "the remembered requests of a job are bounded");
  TROUPE_INVARIANT(!j.elastic || facts_of(*j.spec).elastic,
                   "only an elastic program has measured attempts");
  TROUPE_INVARIANT(!j.failed_rank || *j.failed_rank < j.where.size(),
                   "the part that failed is one of the job's last attempt");
}

void ledger::check_held(const job_record& j, const lease_record& l) const {
  TROUPE_INVARIANT(j.progress.attempts > 0, "a job that holds a lease has begun an attempt");
  TROUPE_INVARIANT(j.where.size() == l.granted.parts.size(),
                   "a job's allocation has a share for each part of its lease");
  TROUPE_INVARIANT(j.not_before_s == std::nullopt, "a job that was started waits for nothing");
  if (!j.in) {
    TROUPE_INVARIANT(l.granted.job == j.id, "a job that is in no union runs in a lease of its own");
    return;
  }
  const auto* all = job(*j.in);
  TROUPE_INVARIANT(all && all->members, "a member's union is a union, and known");
  TROUPE_INVARIANT(std::ranges::binary_search(all->members->jobs, j.id),
                   "a job is in a union that lists it");
  TROUPE_INVARIANT(l.granted.job == *j.in, "a member runs in its union's lease");
  TROUPE_INVARIANT(all->state == j.state, "a member runs or stops with its union");
}

void ledger::check_lease(const lease_record& l) const {
  const auto& g = l.granted;
  const auto* of = job(g.job);
  const auto parts = g.parts.size();
  TROUPE_INVARIANT(g.lease < next_lease_, "the numbers of leases are below the next one");
  TROUPE_INVARIANT(of && of->lease == g.lease, "a lease that is held is its job's present one");
  TROUPE_INVARIANT(!is_final(of->state), "a job that has ended holds no lease");
  TROUPE_INVARIANT(parts > 0, "a lease has parts");
  TROUPE_INVARIANT(
      l.ended.size() == parts && l.succeeded.size() == parts && l.ended_with_zero.size() == parts,
      "a lease knows of each part how it has ended");
  TROUPE_INVARIANT(std::ranges::find(l.ended, false) != l.ended.end(),
                   "a lease is over with its last part");
  TROUPE_INVARIANT(!l.revoked || l.outcome != lease_outcome::succeeded,
                   "a lease that is revoked has a reason that is no success");
  TROUPE_INVARIANT(!l.failed_part || *l.failed_part < parts,
                   "the part that failed is one of its lease");
  TROUPE_INVARIANT(!l.revoked_s || l.revoked, "only a revoked lease has the time of that");
  TROUPE_INVARIANT(l.grace_s >= 0, "the time to save does not fall below zero");
  TROUPE_INVARIANT(!g.after || *g.after < g.lease, "a lease follows an earlier one");
  for (std::size_t i = 0; i < parts; ++i) {
    TROUPE_INVARIANT(l.ended[i] || !l.succeeded[i], "a part that has succeeded has ended");
    TROUPE_INVARIANT(l.ended[i] || !l.ended_with_zero[i], "a part with an exit status has ended");
    check_part(l, i);
  }
}

/// The GPUs of a part are its lease's alone until it has ended, and then no longer.
void ledger::check_part(const lease_record& l, std::size_t i) const {
  const auto& part = l.granted.parts[i];
  const auto& gpus = part.devices;
  const auto* node = nodes_.find(part.node);
  TROUPE_INVARIANT(node, "a lease's nodes are ones of the cluster");
  TROUPE_INVARIANT(std::ranges::adjacent_find(gpus, std::greater_equal{}) == gpus.end(),
                   "a part has each of its GPUs once, in ascending order");
  for (const auto d : gpus) {
    const auto held = d < node->holders.size() ? node->holders[d] : 0;
    const auto next = successor(part.node, d);
    if (l.ended[i]) {
      TROUPE_INVARIANT(held != l.granted.lease, "a part that has ended holds no GPU");
      TROUPE_INVARIANT(next != l.granted.lease, "a part that has ended gets no GPU");
      continue;
    }
    const bool follows = next == l.granted.lease && held == l.granted.after;
    TROUPE_INVARIANT(held == l.granted.lease || follows,
                     "a part that has not ended holds its GPUs, or follows on who does");
  }
}

/// The same of all jobs and leases, and the sums.
void ledger::check_all() const {
  std::size_t unfinished = 0;
  for (const auto& [id, j] : jobs_) {
    TROUPE_INVARIANT(id == j.id, "a job is found by its own number");
    check_job(j);
    unfinished += !is_final(j.state);
  }
  TROUPE_INVARIANT(unfinished == unfinished_, "the unfinished jobs are those that have not ended");
  std::size_t wanted = 0;
  for (const auto& [id, l] : leases_) {
    TROUPE_INVARIANT(id == l.granted.lease, "a lease is found by its own number");
    check_lease(l);
    for (std::size_t i = 0; i < l.ended.size(); ++i)
      if (!l.ended[i]) wanted += l.granted.parts[i].devices.size();
  }
  std::size_t held = 0;
  for (const auto& [n, node] : nodes_) {
    const auto idle = std::ranges::count(node.holders, lease_id{0});
    TROUPE_INVARIANT(node.idle == idle, "a node's idle GPUs are those that no lease holds");
    held += node.holders.size() - node.idle;
    for (const auto id : node.holders)
      TROUPE_INVARIANT(id == 0 || leases_.contains(id), "a GPU is held by a lease that is held");
  }
  TROUPE_INVARIANT(held + successors_.size() == wanted,
                   "the GPUs that are held, or will pass on, are those of all parts that run");
  check_tables();
}

/// Tables that lead to jobs and leases.
void ledger::check_tables() const {
  for (const auto& [gpu, next] : successors_) {
    const auto before = holder(gpu.first, gpu.second);
    TROUPE_INVARIANT(before != 0 && before < next, "a GPU passes on from an earlier lease");
    TROUPE_INVARIANT(leases_.contains(next), "a GPU passes on to a lease that is held");
  }
  for (const auto& [id, outcome] : closed_)
    TROUPE_INVARIANT(jobs_.contains(id), "a job whose end is due is known");
  for (const auto& [lease, id] : lost_) {
    const auto* j = job(id);
    TROUPE_INVARIANT(j && j->lease == lease, "a lost lease is the last one of its job");
    TROUPE_INVARIANT(!leases_.contains(lease), "a lost lease is over");
  }
  for (const auto& [request, id] : requests_)
    TROUPE_INVARIANT(jobs_.contains(id), "a client's request leads to a job");
  for (const auto& [n, drained] : drained_) {
    TROUPE_INVARIANT(nodes_.contains(n), "a node that is drained is one of the cluster");
    TROUPE_INVARIANT(n == drained.node && drained.drained, "a drained node is found by its number");
  }
  TROUPE_INVARIANT(std::ranges::adjacent_find(*epochs_, std::greater_equal{}) == epochs_->end(),
                   "epochs begin in ascending order");
}

}  // namespace troupe::actors
