#include "actors/control/ledger.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include <fmt/format.h>

#include "actors/control/contradiction.hpp"
namespace troupe::actors {

namespace {

constexpr std::size_t max_epochs = 4096;
constexpr std::size_t max_suspensions = 64;  // requests that are remembered of a job

/// Bad news in the order in which it decides a lease's outcome when several parts differ.
bool is_bad(lease_outcome o) {
  return o != lease_outcome::succeeded;
}

/// Leases that end so put their job back into the queue.
bool goes_on(lease_outcome o) {
  return o == lease_outcome::preempted || o == lease_outcome::lost ||
         o == lease_outcome::out_of_memory;
}

}  // namespace

ledger::ledger(const cluster& c) {
  for (const auto& n : c.nodes) {
    idle_.push_back(n.gpus);
    holder_.emplace_back(n.gpus, lease_id{0});
    memory_bytes_.push_back(c.gpus[n.gpu].memory_bytes());
  }
}

expected<void> ledger::apply(const journal_entry& e) {
  return std::visit([this](const auto& entry) { return on(entry); }, e);
}

const job_record* ledger::job(job_id id) const {
  auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : &it->second;
}

const lease_record* ledger::lease(lease_id id) const {
  auto it = leases_.find(id);
  return it == leases_.end() ? nullptr : &it->second;
}

const job_record* ledger::job_of_request(std::uint64_t request) const {
  auto it = requests_.find(request);
  return it == requests_.end() ? nullptr : job(it->second);
}

const job_record* ledger::job_of_lost_lease(lease_id id) const {
  auto it = lost_.find(id);
  return it == lost_.end() ? nullptr : job(it->second);
}

std::vector<std::uint16_t> ledger::take_lowest(node_index n, std::uint32_t count) const {
  std::vector<std::uint16_t> result;
  for (std::uint16_t d = 0; d < holder_[n].size() && result.size() < count; ++d)
    if (holder_[n][d] == 0) result.push_back(d);
  return result;
}

bool ledger::knows_epoch(std::uint64_t e) const {
  // What is older than the oldest that is kept began before any copy was made, or long ago.
  return epochs_.empty() || e <= epochs_.front() ||
         std::binary_search(epochs_.begin(), epochs_.end(), e);
}

expected<void> ledger::on(const epoch_begun& e) {
  if (e.epoch <= epoch())
    return contradiction(fmt::format("epoch {} begins after {}", e.epoch, epoch()));
  if (e.journal != journal_) epochs_.clear();
  if (epochs_.size() >= max_epochs) epochs_.erase(epochs_.begin());
  epochs_.push_back(e.epoch);
  journal_ = e.journal;
  next_lease_ = std::max(next_lease_, e.first_lease);
  return {};
}

expected<void> ledger::on(const job_accepted& e) {
  if (jobs_.contains(e.job)) return contradiction(fmt::format("job {} is accepted twice", e.job));
  auto& j = jobs_[e.job];
  j.id = e.job;
  j.request = e.request;
  j.spec = std::make_shared<const job_spec>(e.spec);
  j.submitted_s = e.at_s;
  j.owner = e.owner;
  requests_[e.request] = e.job;
  next_job_ = std::max(next_job_, e.job + 1);
  ++unfinished_;
  return {};
}

expected<void> ledger::on(const lease_granted& e) {
  auto it = jobs_.find(e.job);
  if (it == jobs_.end() || it->second.state != job_state::waiting)
    return contradiction(
        fmt::format("lease {} is for job {}, which is not waiting", e.lease, e.job));
  if (e.lease < next_lease_)
    return contradiction(fmt::format("lease {} is granted twice", e.lease));
  if (auto ok = check_parts(e); !ok) return ok;
  hold_parts(e, std::vector<bool>(e.parts.size(), false));
  auto& j = it->second;
  j.where.clear();
  for (const auto& part : e.parts)
    j.where.push_back({part.node, static_cast<std::uint32_t>(part.devices.size())});
  j.state = job_state::running;
  lost_.erase(j.lease);
  j.lost_parts.clear();
  j.lost_succeeded.clear();
  j.lease = e.lease;
  j.how = e.how;
  j.predicted_bytes = e.predicted_bytes;
  ++j.attempts;
  j.tries.push_back({e.lease, {}});
  for (const auto& part : e.parts) j.tries.back().nodes.push_back(part.node);
  if (j.started_s == 0) j.started_s = e.at_s;
  next_lease_ = e.lease + 1;
  auto& l = leases_[e.lease];
  l.granted = e;
  l.ended.assign(e.parts.size(), false);
  l.succeeded.assign(e.parts.size(), false);
  l.iterations = std::numeric_limits<std::uint64_t>::max();
  return {};
}

expected<void> ledger::check_parts(const lease_granted& g) const {
  if (g.parts.empty()) return contradiction(fmt::format("lease {} has no parts", g.lease));
  for (const auto& part : g.parts) {
    if (part.node >= holder_.size())
      return contradiction(
          fmt::format("lease {} is for node {}, which does not exist", g.lease, part.node));
    for (auto d : part.devices)
      if (d >= holder_[part.node].size() || holder_[part.node][d] != 0)
        return contradiction(fmt::format("lease {} takes GPU {} of node {}, which is not free",
                                         g.lease, d, part.node));
  }
  return {};
}

void ledger::hold_parts(const lease_granted& g, const std::vector<bool>& ended) {
  for (std::size_t i = 0; i < g.parts.size(); ++i) {
    const auto& part = g.parts[i];
    if (ended[i]) continue;
    for (auto d : part.devices) holder_[part.node][d] = g.lease;
    idle_[part.node] -= static_cast<std::uint32_t>(part.devices.size());
  }
}

expected<void> ledger::on(const lease_revoked& e) {
  auto it = leases_.find(e.lease);
  if (it == leases_.end())
    return contradiction(fmt::format("lease {} is revoked, but not held", e.lease));
  auto& l = it->second;
  if (!is_bad(l.outcome)) {
    l.outcome = e.why;
    l.detail = e.detail;
  }
  // A user's wish to end the job outranks what else goes wrong with it.
  if (e.why == lease_outcome::cancelled) l.outcome = e.why;
  l.revoked = true;
  jobs_[l.granted.job].state = job_state::stopping;
  return {};
}

expected<void> ledger::on(const part_ended& e) {
  auto it = leases_.find(e.lease);
  if (it == leases_.end() || e.part >= it->second.ended.size() || it->second.ended[e.part])
    return contradiction(fmt::format("part {} of lease {} ends, but is not held", e.part, e.lease));
  auto& l = it->second;
  const auto& part = l.granted.parts[e.part];
  l.ended[e.part] = true;
  l.succeeded[e.part] = e.outcome == lease_outcome::succeeded;
  for (auto d : part.devices) holder_[part.node][d] = 0;
  idle_[part.node] += static_cast<std::uint32_t>(part.devices.size());
  l.iterations = std::min(l.iterations, e.iterations);
  l.peak_bytes = std::max(l.peak_bytes, e.peak_bytes);
  if (e.exit_code && l.exit_code.value_or(0) == 0) l.exit_code = e.exit_code;
  if (is_bad(e.outcome) && !is_bad(l.outcome)) {
    l.outcome = e.outcome;
    l.detail = e.detail;
  }
  if (std::find(l.ended.begin(), l.ended.end(), false) == l.ended.end()) {
    // What has succeeded in spite of being told to stop, or while its node was taken for lost, need
    // not be done again.
    const bool whole =
        std::find(l.succeeded.begin(), l.succeeded.end(), false) == l.succeeded.end();
    if (whole && goes_on(l.outcome)) l.outcome = lease_outcome::succeeded, l.detail.clear();
    close(l);
    leases_.erase(it);
  }
  return {};
}

/// A GPU of `memory` was too small for what was predicted to fit it: every prediction for this job
/// is too small by at least their ratio. Where nothing was predicted to fit, only that much is
/// known.
void ledger::learn_from_failure(job_record& j, const lease_granted& g) const {
  double memory = memory_bytes_[g.parts.front().node];
  for (const auto& part : g.parts) memory = std::min(memory, memory_bytes_[part.node]);
  constexpr double a_little_more = 1.0001;
  if (g.predicted_bytes > 0 && g.predicted_bytes < memory)
    j.memory_factor *= a_little_more * memory / g.predicted_bytes;
  else
    j.bytes_floor = std::max(j.bytes_floor, g.predicted_bytes);
}

void ledger::close(lease_record& l) {
  auto& j = jobs_[l.granted.job];
  const bool ran_out = l.outcome == lease_outcome::out_of_memory;
  j.peak_bytes = l.peak_bytes;
  j.exit_code = l.exit_code;
  j.detail = l.detail;
  // What was predicted against what was seen, for every attempt that says something about it.
  if (ran_out || l.peak_bytes > 0)
    j.memory.push_back({l.granted.how, l.granted.predicted_bytes, l.peak_bytes, ran_out});
  if (ran_out) {
    ++j.out_of_memory;
    learn_from_failure(j, l.granted);
  }
  if (goes_on(l.outcome)) {
    const auto left = j.spec->iterations - std::min(j.spec->iterations, j.iterations_done);
    const auto progress = std::min(l.iterations, left);
    j.iterations_done += progress;
    j.state = job_state::waiting;
    const bool lost = l.outcome == lease_outcome::lost;
    if (progress > 0) j.losses = 0;
    if (progress > 0 || !lost || ++j.losses <= j.spec->max_restarts) {
      if (lost) {
        j.lost_parts = l.granted.parts;
        j.lost_succeeded = l.succeeded;
        lost_[j.lease] = j.id;
      }
      return;
    }
    // Perhaps it is the job that takes its nodes down: the next one would go the same way.
    j.detail = fmt::format(
        "lost its node in {} consecutive attempts without progress (max_restarts {}); most "
        "recently: {}",
        j.losses, j.spec->max_restarts, l.detail);
    l.outcome = lease_outcome::failed;
  }
  if (l.outcome == lease_outcome::succeeded) j.iterations_done = j.spec->iterations;
  j.state = job_state::stopping;
  closed_[j.id] = l.outcome;
}

std::unique_ptr<job_ended> ledger::due(job_id id, double now_s) const {
  auto it = closed_.find(id);
  if (it == closed_.end()) return nullptr;
  auto result = std::make_unique<job_ended>();
  result->job = id;
  result->at_s = now_s;
  result->detail = jobs_.at(id).detail;
  result->final_state = it->second == lease_outcome::succeeded   ? job_state::finished
                        : it->second == lease_outcome::cancelled ? job_state::cancelled
                                                                 : job_state::failed;
  return result;
}

expected<void> ledger::on(const job_ended& e) {
  auto it = jobs_.find(e.job);
  if (it == jobs_.end())
    return contradiction(fmt::format("job {} ends, but was never accepted", e.job));
  auto& j = it->second;
  if (is_final(j.state)) return contradiction(fmt::format("job {} ends twice", e.job));
  if (leases_.contains(j.lease))
    return contradiction(fmt::format("job {} ends while it holds GPUs", e.job));
  j.state = e.final_state;
  if (j.state == job_state::finished) j.iterations_done = j.spec->iterations;
  lost_.erase(j.lease);
  j.lost_parts.clear();
  j.lost_succeeded.clear();
  j.ended_s = e.at_s;
  j.detail = e.detail;
  closed_.erase(e.job);
  --unfinished_;
  return {};
}

expected<void> ledger::on(const job_suspended& e) {
  auto it = jobs_.find(e.job);
  if (it == jobs_.end() || is_final(it->second.state))
    return contradiction(
        fmt::format("job {} is suspended, but does not exist or has ended", e.job));
  auto& j = it->second;
  j.suspended = e.suspended;
  if (j.suspensions.size() >= max_suspensions) j.suspensions.erase(j.suspensions.begin());
  j.suspensions.push_back(e.request);
  return {};
}

bool operator==(const job_record& a, const job_record& b) {
  const auto rest = [](const job_record& j) {
    return std::tie(j.id, j.request, j.state, j.submitted_s, j.started_s, j.ended_s, j.attempts,
                    j.out_of_memory, j.memory_factor, j.bytes_floor, j.iterations_done, j.lease,
                    j.how, j.where, j.predicted_bytes, j.peak_bytes, j.memory, j.detail, j.tries,
                    j.owner, j.losses, j.lost_parts, j.lost_succeeded, j.exit_code, j.suspended,
                    j.suspensions);
  };
  return *a.spec == *b.spec && rest(a) == rest(b);
}

}  // namespace troupe::actors
