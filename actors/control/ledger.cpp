#include "actors/control/ledger.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "actors/control/elastic_attempts.hpp"
#include "actors/control/unions.hpp"
#include "messages/base/invariant.hpp"

namespace troupe::actors {

namespace {

constexpr std::size_t max_epochs = 4096;
constexpr std::size_t max_suspensions = 64;  // remembered requests per job

/// Severity of outcomes: which one counts if several parts differ.
bool is_bad(lease_outcome o) {
  return o != lease_outcome::succeeded;
}

/// Do leases with this outcome put their job back into the queue?
bool goes_on(lease_outcome o) {
  return o == lease_outcome::preempted || o == lease_outcome::lost ||
         o == lease_outcome::out_of_memory;
}

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

expected<void> ledger::on(const lease_granted& e) {
  const auto* known = job(e.job);
  if (!known || known->state != job_state::waiting)
    return contradiction("lease {} is for job {}, which is not waiting", e.lease, e.job);
  if (known->members)
    for (const auto id : known->members->jobs)
      if (const auto* m = job(id); !m || m->state != job_state::waiting)
        return contradiction("lease {} is for job {} of a union, which is not waiting", e.lease,
                             id);
  // Lease numbers are fencing tokens: a node or a checkpoint directory believes the larger one.
  if (e.lease < next_lease_) return contradiction("lease {} is granted twice", e.lease);
  if (auto ok = check_parts(e); !ok) return ok;
  hold_parts(e, std::vector<bool>(e.parts.size(), false));
  begin_attempt(e.job, e);
  if (const auto& all = jobs_.at(e.job).members)
    for (const auto id : all->jobs) begin_attempt(id, e);
  next_lease_ = e.lease + 1;
  TROUPE_INVARIANT(leases_.empty() || leases_.last_key() < e.lease);
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
  j.how = e.how;
  j.predicted_bytes = e.predicted_bytes;
  ++j.attempts;
  j.tries.push_back({e.lease, {}});
  for (const auto& part : e.parts) j.tries.back().nodes.push_back(part.node);
  if (j.started_s == 0) j.started_s = e.at_s;
  if (is_elastic_program(*j.spec) && !j.elastic) {
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
  for (auto d : part.devices) node.holders[d] = next(d);
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
      successors_.set({n, d}, g.lease);
      return before;
    });
  }
}

/// The GPUs stay held: revoking only decides the outcome. They are free when each part has ended.
expected<void> ledger::on(const lease_revoked& e) {
  const auto* held = lease(e.lease);
  if (!held) return contradiction("lease {} is revoked, but not held", e.lease);
  auto l = *held;
  if (!is_bad(l.outcome)) {
    l.outcome = e.why;
    l.detail = e.detail;
    l.failed_part = e.part;
  }
  // A user's request to end the job takes precedence over failures.
  if (e.why == lease_outcome::cancelled) l.outcome = e.why;
  l.revoked = true;
  l.grace_s = e.grace_s;
  auto j = jobs_.at(l.granted.job);
  TROUPE_INVARIANT(j.lease == e.lease && !is_final(j.state));
  if (j.elastic && !l.revoked_s) l.revoked_s = e.at_s;
  const auto members = members_of(*this, j);
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

/// The end of a part, as it counts for its lease.
void ledger::add_end(lease_record& l, const part_ended& e) {
  l.ended[e.part] = true;
  l.succeeded[e.part] = e.outcome == lease_outcome::succeeded;
  l.ended_with_zero[e.part] = e.exit_code == 0;
  l.iterations = std::min(l.iterations, e.iterations);
  l.peak_bytes = std::max(l.peak_bytes, e.peak_bytes);
  if (e.exit_code && l.exit_code.value_or(0) == 0) l.exit_code = e.exit_code;
  if (e.program) {
    auto& all = l.program ? *l.program : l.program.emplace();
    all.finished = all.finished || e.program->finished;
    if (e.program->saved)
      all.saved = std::min(all.saved.value_or(*e.program->saved), *e.program->saved);
    all.start_s = std::max(all.start_s, e.program->start_s);
    all.step_s = std::max(all.step_s, e.program->step_s);
    all.reached = std::max(all.reached, e.program->reached);
  }
  // The report of a part that failed because of another one's lost node often arrives first.
  const bool beside_a_loss =
      e.outcome == lease_outcome::lost && l.outcome == lease_outcome::failed && l.failed_part;
  if (is_bad(e.outcome) && (!is_bad(l.outcome) || beside_a_loss)) {
    l.outcome = e.outcome;
    l.detail = e.detail;
    l.failed_part = is_failure(e.outcome) ? std::optional{e.part} : std::nullopt;
  }
}

expected<void> ledger::on(const part_ended& e) {
  const auto* held = lease(e.lease);
  if (!held || e.part >= held->ended.size() || held->ended[e.part])
    return contradiction("part {} of lease {} ends, but is not held", e.part, e.lease);
  auto l = *held;
  const auto& part = l.granted.parts[e.part];
  change_holders(part, [&](std::uint16_t d) {
    const auto now = holder(part.node, d), next = successor(part.node, d);
    TROUPE_INVARIANT(now == e.lease || next == e.lease);
    successors_.erase({part.node, d});
    return now == e.lease ? next : now;
  });
  add_end(l, e);
  if (std::find(l.ended.begin(), l.ended.end(), false) != l.ended.end()) {
    leases_.set(e.lease, std::move(l));
    return {};
  }
  // Parts that succeeded before they were stopped, or while their node was considered lost, need
  // not be repeated.
  const auto all = [](const std::vector<bool>& parts) {
    return std::find(parts.begin(), parts.end(), false) == parts.end();
  };
  const bool whole =
      all(l.succeeded) || (l.program && l.program->finished && all(l.ended_with_zero));
  if (whole && goes_on(l.outcome)) l.outcome = lease_outcome::succeeded, l.detail.clear();
  close(l, e.at_s);
  leases_.erase(e.lease);
  return {};
}

expected<void> ledger::on(const program_saved& e) {
  const auto* held = lease(e.lease);
  if (!held) return contradiction("the program of lease {} has saved, but is not running", e.lease);
  auto l = *held;
  l.saved = e.saved;
  leases_.set(e.lease, std::move(l));
  return {};
}

/// The iterations of a job that goes on after this lease: what its program has reported as saved,
/// or what all parts have done.
std::uint64_t ledger::done_after(const job_record& j, const lease_record& l) {
  if (is_serving(*j.spec)) return 0;
  const auto limit =
      has_known_length(*j.spec) ? j.spec->iterations : std::numeric_limits<std::uint64_t>::max();
  const auto saved = l.program && l.program->saved ? l.program->saved : l.saved;
  if (saved) return std::min(*saved, limit);
  return j.iterations_done + std::min(l.iterations, limit - std::min(limit, j.iterations_done));
}

void ledger::close(const lease_record& l, double at_s) {
  const auto j = jobs_.at(l.granted.job);
  if (j.members) return close_members(j, l, at_s);
  close_job(j, l, at_s, done_after(j, l));
}

/// A union is over with its lease, whatever the reason: each member that has not left waits again
/// as itself, or has ended as the lease has.
void ledger::close_members(const job_record& of_union, const lease_record& l, double at_s) {
  for (const auto* member : members_of(*this, of_union)) {
    auto m = *member;
    m.in.reset();
    const auto done = m.iterations_done + iterations_in_union(of_union, m.id, l.iterations);
    close_job(std::move(m), l, at_s, done);
  }
  auto over = of_union;
  over.state = job_state::stopping;
  over.detail = l.detail;
  jobs_.set(over.id, over);
  closed_.set(over.id, l.outcome == lease_outcome::succeeded ? lease_outcome::succeeded
                                                             : lease_outcome::cancelled);
}

/// `done`: the job's iterations, if it goes on.
void ledger::close_job(job_record j, lease_record l, double at_s, std::uint64_t done) {
  const bool merged = j.id != l.granted.job;
  const bool ran_out = l.outcome == lease_outcome::out_of_memory;
  j.ran_s += std::max(0.0, at_s - l.granted.at_s);
  j.peak_bytes = l.peak_bytes;
  j.exit_code = l.exit_code;
  j.detail = l.detail;
  if (is_program(*j.spec) && is_failure(l.outcome)) j.failed_rank = l.failed_part;
  // Predictions and measurements of every attempt that has both.
  if (!merged && (ran_out || l.peak_bytes > 0))
    j.memory.push_back({l.granted.how, l.granted.predicted_bytes, l.peak_bytes, ran_out});
  if (ran_out) {
    ++j.out_of_memory;
    // The memory of several jobs says nothing of one.
    if (merged)
      j.alone = true;
    else
      raise_memory(j, l.granted);
  }
  if (j.elastic)
    add_attempt(*j.elastic, *j.spec, l, gpu_type_of(l.granted), at_s,
                goes_on(l.outcome) ? done : std::max(done, j.iterations_done));
  // A decoder is started again even if it fails: it has no result that the failure would be. An
  // elastic program goes on from what it has saved.
  const bool serves = is_serving(*j.spec);
  const bool fell = (serves || j.elastic) && l.outcome == lease_outcome::failed;
  if (goes_on(l.outcome) || fell) {
    const auto before = std::exchange(j.iterations_done, done);
    const bool progress =
        serves ? at_s - l.granted.at_s >= decoder_proof_s : j.iterations_done > before;
    j.state = job_state::waiting;
    const bool lost = l.outcome == lease_outcome::lost;
    if (progress) j.losses = 0;
    const auto limit = j.elastic && fell ? j.spec->elastic->retries : j.spec->max_restarts;
    if (progress || !(lost || fell) || ++j.losses <= limit) {
      if (lost && !merged) {
        j.lost_parts = l.granted.parts;
        j.lost_succeeded = l.succeeded;
        lost_.set(j.lease, j.id);
      }
      return jobs_.set(j.id, std::move(j));
    }
    // The job itself may be what takes its nodes down.
    j.detail = fmt::format(
        "{} in {} consecutive attempts {} ({} {}); most recently: {}",
        serves      ? "its decoder failed, or lost its node,"
        : j.elastic ? "failed, or lost its node,"
                    : "lost its node",
        j.losses, serves ? fmt::format("of less than {:g} s", decoder_proof_s) : "without progress",
        j.elastic && fell ? "elastic.retries" : "max_restarts", limit, l.detail);
    l.outcome = lease_outcome::failed;
  }
  if (l.outcome == lease_outcome::succeeded) j.iterations_done = j.spec->iterations;
  j.state = job_state::stopping;
  closed_.set(j.id, l.outcome);
  jobs_.set(j.id, std::move(j));
}

/// The ledger makes the entry, and the orchestrator records it: a controller that dies between the
/// two finds it due at its next start.
std::unique_ptr<job_ended> ledger::due(job_id id, double now_s) const {
  const auto* outcome = closed_.find(id);
  if (!outcome) return nullptr;
  auto result = std::make_unique<job_ended>();
  result->job = id;
  result->at_s = now_s;
  result->detail = jobs_.at(id).detail;
  result->final_state = *outcome == lease_outcome::succeeded   ? job_state::finished
                        : *outcome == lease_outcome::cancelled ? job_state::cancelled
                                                               : job_state::failed;
  return result;
}

expected<void> ledger::on(const member_ended& e) {
  const auto* known = job(e.job);
  if (!known || !known->in) return contradiction("job {} leaves a union, but is in none", e.job);
  const auto& held = *lease(known->lease);
  auto alone = held;
  alone.outcome = e.outcome;
  alone.detail = e.detail;
  auto j = *known;
  j.in.reset();
  close_job(std::move(j), std::move(alone), e.at_s, known->iterations_done + e.iterations);
  return {};
}

expected<void> ledger::on(const job_ended& e) {
  const auto* known = job(e.job);
  if (!known) return contradiction("job {} ends, but was never accepted", e.job);
  auto j = *known;
  if (is_final(j.state)) return contradiction("job {} ends twice", e.job);
  // Its GPUs would be free while its programs run.
  if (lease_of(j)) return contradiction("job {} ends while it holds GPUs", e.job);
  j.state = e.final_state;
  if (j.state == job_state::finished) j.iterations_done = j.spec->iterations;
  lost_.erase(j.lease);
  j.lost_parts.clear();
  j.lost_succeeded.clear();
  j.ended_s = e.at_s;
  j.detail = e.detail;
  closed_.erase(e.job);
  jobs_.set(e.job, std::move(j));
  TROUPE_INVARIANT(unfinished_ > 0);
  --unfinished_;
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
  j.suspended = e.suspended;
  remember_request(j, e.request);
  jobs_.set(e.job, std::move(j));
  return {};
}

}  // namespace troupe::actors
