// What ends jobs that did not end by themselves in time; and the ports that programs get.

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "actors/control/orchestrator.hpp"

namespace troupe::actors {

/// A job that is late is ended: after its deadline it is of no use.
void orchestrator_state::remember_deadline(const job_record& j) {
  if (j.spec->deadline_s && !is_final(j.state))
    deadlines_.emplace(j.submitted_s + *j.spec->deadline_s, j.id);
}

void orchestrator_state::end_overdue() {
  for (auto it = deadlines_.begin(); it != deadlines_.end() && it->first <= wall();) {
    const auto* known = ledger_->job(it->second);
    if (!known || is_final(known->state)) {
      it = deadlines_.erase(it);
      continue;
    }
    const auto j = *known;
    const auto text = fmt::format(
        "its deadline has passed: deadline_s is {:g}, {} after {} of {} "
        "iterations",
        *j.spec->deadline_s, to_string(j.state), j.iterations_done, j.spec->iterations);
    if (j.state == job_state::waiting) {
      record(job_ended{j.id, wall(), job_state::failed, text});
    } else if (const auto* l = ledger_->lease(j.lease); l && !l->revoked) {
      revoke(j.lease, lease_outcome::failed, text);
    }
    it = is_final(ledger_->job(j.id)->state) ? deadlines_.erase(it) : std::next(it);
  }
}

namespace {

/// The job's own limit, or that of the cluster; a decoder runs until it is cancelled.
std::optional<double> time_limit_s(const cluster& c, const job_spec& spec) {
  if (is_serving(spec)) return {};
  return spec.time_limit_s ? spec.time_limit_s : c.settings.time_limit_s;
}

}  // namespace

void orchestrator_state::remember_limit(const lease_record& l) {
  const auto& j = *ledger_->job(l.granted.job);
  if (const auto limit_s = time_limit_s(*cluster_, *j.spec))
    limits_.emplace(l.granted.at_s + std::max(0.0, *limit_s - j.ran_s), l.granted.lease);
}

/// A job that has run for longer than its limit, over all attempts; a training saves first.
void orchestrator_state::end_long_runs() {
  while (!limits_.empty() && limits_.begin()->first <= wall()) {
    const auto id = limits_.begin()->second;
    limits_.erase(limits_.begin());
    const auto* l = ledger_->lease(id);
    if (!l || l->revoked) continue;
    const auto j = *ledger_->job(l->granted.job);
    const auto text = fmt::format(
        "its time limit has passed: time_limit_s is {:g}, it ran {:.0f} s in {} attempt{}",
        *time_limit_s(*cluster_, *j.spec), j.ran_s + wall() - l->granted.at_s, j.attempts,
        j.attempts == 1 ? "" : "s");
    revoke({id,
            wall(),
            lease_outcome::failed,
            text,
            is_training(*j.spec) ? cluster_->settings.preempt_grace_s : 0,
            {},
            {}});
  }
}

/// One that rank 0's node has found free and that no other lease there uses; consecutive leases get
/// different ones, so that a late process of the previous one cannot join. None: the node is
/// simulated.
std::optional<std::uint16_t> orchestrator_state::free_port(node_index n, lease_id id) const {
  const auto& ports = nodes_[n].ports;
  if (ports.empty()) return {};
  std::set<std::uint16_t> taken;
  for (const auto& [other, l] : ledger_->leases())
    if (l.granted.port && (options_.local || l.granted.parts.front().node == n))
      taken.insert(*l.granted.port);
  for (std::size_t i = 0; i < ports.size(); ++i)
    if (const auto port = ports[(id + i) % ports.size()]; !taken.contains(port)) return port;
  return ports[id % ports.size()];
}

}  // namespace troupe::actors
