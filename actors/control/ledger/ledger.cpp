#include "actors/control/ledger/ledger.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "actors/control/ledger/ends.hpp"
#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"
#include "messages/domain/work_kind.hpp"

namespace troupe::actors {

namespace {

constexpr std::size_t max_epochs = 4096;

}  // namespace

ledger::ledger(const cluster& c) {
  for (node_index n = 0; n < c.nodes.size(); ++n) {
    const auto gpus = c.nodes[n].gpus;
    nodes_.set(
        n, {std::vector<lease_id>(gpus, 0), gpus, c.gpu_of(n).memory_bytes(), c.gpu_of(n).name});
  }
}

/// The entry is applied as a whole or not at all: each on() checks everything before its first
/// change. The time is that of the newest entry, by which the next controller begins
/// (journal_time.hpp).
expected<void> ledger::apply(const journal_entry& e) {
  return std::visit(
      [this](const auto& entry) {
        auto ok = on(entry);
        if constexpr (requires { entry.at_s; })
          if (ok) latest_s_ = std::max(latest_s_, entry.at_s);
        return ok;
      },
      e);
}

const job_record* ledger::job_of_request(std::uint64_t request) const {
  const auto* id = requests_.find(request);
  return id ? job(*id) : nullptr;
}

const lease_record* ledger::lease_of(const job_record& j) const {
  const auto* l = lease(j.lease);
  return l && (l->granted.job == j.id || j.in == l->granted.job) ? l : nullptr;
}

std::vector<const job_record*> ledger::members_of(const job_record& of_union) const {
  std::vector<const job_record*> out;
  if (!of_union.members) return out;
  for (const auto id : of_union.members->jobs)
    if (const auto* j = job(id); j && j->in == of_union.id) out.push_back(j);
  return out;
}

const job_record* ledger::job_of_lost_lease(lease_id id) const {
  const auto* of = lost_.find(id);
  return of ? job(*of) : nullptr;
}

bool ledger::knows_epoch(std::uint64_t e) const {
  // Epochs older than the oldest known one cannot be checked.
  return epochs_->empty() || e <= epochs_->front() ||
         std::binary_search(epochs_->begin(), epochs_->end(), e);
}

expected<void> ledger::on(const epoch_begun& e) {
  if (e.epoch <= epoch()) return contradiction("epoch {} begins after {}", e.epoch, epoch());
  auto epochs = e.journal == journal_ ? *epochs_ : std::vector<std::uint64_t>{};
  // A node that has followed one of the forgotten epochs cannot be told from one of a lost history;
  // it is believed (knows_epoch).
  if (epochs.size() >= max_epochs) epochs.erase(epochs.begin());
  TROUPE_INVARIANT(epochs.empty() || epochs.back() < e.epoch,
                   "an epoch is later than all that the journal knows");
  epochs.push_back(e.epoch);
  epochs_ = shared_value{std::move(epochs)};
  journal_ = e.journal;
  clock_ = e.clock;
  next_lease_ = std::max(next_lease_, e.first_lease);
  return {};
}

expected<void> ledger::on(const job_accepted& e) {
  if (jobs_.contains(e.job)) return contradiction("job {} is accepted twice", e.job);
  if (auto ok = check_members(e); !ok) return ok;
  job_record j;
  j.id = e.job;
  j.request = e.request;
  j.spec = shared_value{e.spec};
  j.submitted_s = e.at_s;
  j.owner = e.owner;
  j.members = e.members;
  jobs_.set(e.job, std::move(j));
  // A repeated submission finds the job by it, also after a restart.
  if (!e.members) requests_.set(e.request, e.job);
  next_job_ = std::max(next_job_, e.job + 1);
  ++unfinished_;
  TROUPE_INVARIANT(jobs_.size() >= unfinished_, "the unfinished jobs are among all jobs");
  return {};
}

/// A union is of two jobs at least, which wait, and are in no other.
expected<void> ledger::check_members(const job_accepted& e) const {
  if (!e.members) return {};
  const auto& ids = e.members->jobs;
  if (ids.size() < 2 || ids.size() != e.members->work.size() ||
      std::ranges::adjacent_find(ids, std::greater_equal{}) != ids.end())
    return contradiction("union {} needs two members at least, in ascending order, with their work",
                         e.job);
  for (const auto id : ids)
    if (const auto* j = job(id); !j || j->members || j->state != job_state::waiting)
      return contradiction("union {} has job {}, which is not waiting", e.job, id);
  return {};
}

/// Between a union and its lease no job of it may have run: it has its members' work by the number.
expected<void> ledger::check_members_left(lease_id lease, const job_record& j) const {
  if (!j.members) return {};
  for (std::size_t i = 0; i < j.members->jobs.size(); ++i) {
    const auto id = j.members->jobs[i];
    const auto* m = job(id);
    if (!m || m->state != job_state::waiting)
      return contradiction("lease {} is for job {} of a union, which is not waiting", lease, id);
    if (j.members->work[i].iterations + m->progress.iterations_done >
        std::max(m->progress.iterations_done, m->spec->iterations))
      return contradiction(
          "lease {} is for a union with {} iterations of job {}, which has {} of {}", lease,
          j.members->work[i].iterations, id, m->progress.iterations_done, m->spec->iterations);
  }
  return {};
}

expected<void> ledger::on(const lease_granted& e) {
  const auto* known = job(e.job);
  if (!known || known->state != job_state::waiting)
    return contradiction("lease {} is for job {}, which is not waiting", e.lease, e.job);
  if (auto ok = check_members_left(e.lease, *known); !ok) return ok;
  // Lease numbers are fencing tokens: a node or a checkpoint directory believes the larger one.
  if (e.lease < next_lease_) return contradiction("lease {} is granted twice", e.lease);
  if (auto ok = check_parts(e); !ok) return ok;
  hold_parts(e, std::vector<bool>(e.parts.size(), false));
  begin_attempt(e.job, e);
  if (const auto& all = jobs_.at(e.job).members)
    for (const auto id : all->jobs) begin_attempt(id, e);
  next_lease_ = e.lease + 1;
  TROUPE_INVARIANT(leases_.empty() || leases_.last_key() < e.lease,
                   "a lease's number is larger than those of all leases before");
  lease_record l;
  l.granted = e;
  l.ended.assign(e.parts.size(), false);
  l.succeeded.assign(e.parts.size(), false);
  l.ended_with_zero.assign(e.parts.size(), false);
  l.iterations = std::numeric_limits<std::uint64_t>::max();
  leases_.set(e.lease, std::move(l));
  return {};
}

/// The job is the lease's, or a member of it.
void ledger::begin_attempt(job_id id, const lease_granted& e) {
  auto j = jobs_.at(id);
  TROUPE_INVARIANT(j.state == job_state::waiting, "an attempt begins of a job that waits");
  TROUPE_INVARIANT(!j.in, "a job is in one union at a time");
  TROUPE_INVARIANT(!closed_.contains(id), "a job whose end is due is not started");
  if (id != e.job) j.in = e.job;
  j.where.clear();
  for (const auto& part : e.parts)
    j.where.push_back({part.node, static_cast<std::uint32_t>(part.devices.size())});
  j.state = job_state::running;
  lost_.erase(j.lease);
  j.lost_parts.clear();
  j.lost_succeeded.clear();
  j.lease = e.lease;
  j.detail.clear();
  j.failed_rank.reset();
  j.word.reset();
  j.not_before_s.reset();
  j.how = e.how;
  j.predicted_bytes = e.predicted_bytes;
  ++j.progress.attempts;
  j.tries.push_back({e.lease, mapped(e.parts, &lease_part::node), {}});
  if (j.started_s == 0) j.started_s = e.at_s;
  if (facts_of(*j.spec).elastic && !j.elastic) {
    auto& first = j.elastic.emplace();
    first.first_gpus = total_gpus(j.where);
    first.first_tensor_parallel = e.how.tensor_parallel;
    first.first_pipeline_parallel = e.how.pipeline_parallel;
    first.first_type = gpu_type_of(e);
  }
  jobs_.set(id, std::move(j));
}

expected<void> ledger::check_parts(const lease_granted& g) const {
  if (g.parts.empty()) return contradiction("lease {} has no parts", g.lease);
  for (const auto& part : g.parts) {
    const auto* node = nodes_.find(part.node);
    if (!node)
      return contradiction(
          "lease {} of job {} is for the node with number {}, and the cluster has {}: an earlier "
          "version wrote this journal, which names nodes by their place in the cluster file. Start "
          "the controller once with the file that it had then; later files may differ",
          g.lease, g.job, part.node, nodes_.size());
    // A GPU passes from one lease to another only as this entry says, and to one only.
    const auto is_free = [&](std::uint16_t d) {
      if (d >= node->holders.size()) return false;
      const auto held = node->holders[d];
      return held == 0 || (held == g.after && successor(part.node, d) == 0);
    };
    for (auto d : part.devices)
      if (!is_free(d))
        return contradiction("lease {} takes GPU {} of node {}, which is not free", g.lease, d,
                             part.node);
  }
  return {};
}

/// `next`: who holds a GPU of the part from now on.
void ledger::change_holders(const lease_part& part,
                            const std::function<lease_id(std::uint16_t)>& next) {
  auto node = nodes_.at(part.node);
  for (auto d : part.devices) {
    TROUPE_INVARIANT(d < node.holders.size(), "a part's GPUs are ones of its node");
    node.holders[d] = next(d);
  }
  node.keep_only_held_if_removed();
  node.idle = static_cast<std::uint32_t>(std::ranges::count(node.holders, lease_id{0}));
  nodes_.set(part.node, std::move(node));
}

void ledger::node_gpus::keep_only_held_if_removed() {
  if (!removed) return;
  while (!holders.empty() && holders.back() == 0) holders.pop_back();
}

void ledger::hold_parts(const lease_granted& g, const std::vector<bool>& ended) {
  for (std::size_t i = 0; i < g.parts.size(); ++i) {
    if (ended[i]) continue;
    const auto n = g.parts[i].node;
    change_holders(g.parts[i], [&](std::uint16_t d) {
      const auto before = holder(n, d);
      if (before == 0) return g.lease;
      TROUPE_INVARIANT(before == g.after && before != g.lease,
                       "a GPU that is held passes to the lease that follows on its holder");
      TROUPE_INVARIANT(successor(n, d) == 0, "a GPU has one successor");
      successors_.set({n, d}, g.lease);
      return before;
    });
  }
}

/// The GPUs stay held: revoking only decides the outcome. They are free when each part has ended.
expected<void> ledger::on(const lease_revoked& e) {
  const auto* held = lease(e.lease);
  if (!held) return contradiction("lease {} is revoked, but not held", e.lease);
  if (e.part && *e.part >= held->granted.parts.size())
    return contradiction("lease {} is revoked for part {}, which it does not have", e.lease,
                         *e.part);
  auto l = *held;
  const bool first = l.outcome == lease_outcome::succeeded;
  if (first) {
    l.detail = e.detail;
    l.failed_part = e.part;
  }
  // A user's request to end the job takes precedence over failures.
  if (first || e.why == lease_outcome::cancelled) {
    l.outcome = e.why;
    l.word = word_of(e);
  }
  l.revoked = true;
  l.grace_s = e.grace_s;
  auto j = jobs_.at(l.granted.job);
  TROUPE_INVARIANT(j.lease == e.lease && !is_final(j.state),
                   "a lease that is revoked is its job's present one");
  if (j.elastic && !l.revoked_s) l.revoked_s = e.at_s;
  const auto members = members_of(j);
  for (const auto* m : members)
    TROUPE_INVARIANT(m->lease == e.lease && !is_final(m->state),
                     "a member's present lease is its union's");
  const auto stop = [&](job_record stopped) {
    stopped.state = job_state::stopping;
    if (e.request) remember_request(stopped, *e.request);
    jobs_.set(stopped.id, std::move(stopped));
  };
  for (const auto* m : members) stop(*m);
  stop(std::move(j));
  leases_.set(e.lease, std::move(l));
  return {};
}

/// Bounded: a client that repeats a request after 64 later ones for the same job is not recognized.
void ledger::remember_request(job_record& j, std::uint64_t request) {
  if (j.suspensions.size() >= max_suspensions) j.suspensions.erase(j.suspensions.begin());
  j.suspensions.push_back(request);
}

expected<void> ledger::on(const program_saved& e) {
  const auto* held = lease(e.lease);
  if (!held) return contradiction("the program of lease {} has saved, but is not running", e.lease);
  auto l = *held;
  l.saved = e.saved;
  leases_.set(e.lease, std::move(l));
  return {};
}

/// That it was suspended explains nothing of a job that is resumed.
void ledger::forget_preemption(job_record& j) {
  if (j.suspended && j.state == job_state::waiting) j.detail.clear();
  const auto* held = lease_of(j);
  if (!held || held->outcome != lease_outcome::preempted) return;
  auto l = *held;
  l.detail.clear();
  leases_.set(j.lease, std::move(l));
}

expected<void> ledger::on(const job_suspended& e) {
  const auto* known = job(e.job);
  if (!known || is_final(known->state))
    return contradiction("job {} is suspended, but does not exist or has ended", e.job);
  auto j = *known;
  if (!e.suspended) forget_preemption(j);
  if (!e.suspended) j.not_before_s.reset();  // its user does not wait for the next attempt
  j.suspended = e.suspended;
  remember_request(j, e.request);
  jobs_.set(e.job, std::move(j));
  return {};
}

}  // namespace troupe::actors
