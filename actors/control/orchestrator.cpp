#include "actors/control/orchestrator.hpp"

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include <fmt/format.h>

#include "actors/control/desired_work.hpp"
#include "actors/protocol/actor_failure.hpp"
#include "actors/protocol/messenger.hpp"
#include "actors/protocol/permissions.hpp"
#include "actors/protocol/timing.hpp"
#include "messages/admission/admission.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/fits.hpp"
#include "runtime/host/log.hpp"

namespace troupe::actors {

void orchestrator_state::start(orchestrator_actor::pointer self, runtime::host h,
                               orchestrator_options options) {
  self_ = self;
  host_ = std::move(h);
  options_ = std::move(options);
  const auto file = *options_.cluster;
  ledger_.emplace(file);
  auto replayed = host_.journal->replay([this](const journal_entry& e) {
    if (auto ok = ledger_->apply(e); !ok)
      throw std::runtime_error("the journal contradicts itself: " + ok.error().text);
    if (const auto* progress = std::get_if<training_progress>(&e)) training_.add(progress->report);
    if (const auto* over = std::get_if<job_ended>(&e)) training_.ended(over->job);
  });
  if (!replayed) throw std::runtime_error(replayed.error().text);
  begin_time();
  choose_cluster(file);
  for (const auto& [id, l] : ledger_->leases())
    for (std::size_t i = 0; i < l.ended.size(); ++i) {
      const auto& part = l.granted.parts[i];
      auto& node = nodes_[part.node];
      // A late report of the node's previous incarnation.
      node.incarnation = std::max(node.incarnation, part.incarnation);
      if (!l.ended[i]) node.leases.insert(id);
    }
  begin_epoch();
  // The controller may have died between the two entries.
  const auto leases = ledger_->leases();
  for (const auto& [id, l] : leases) {
    if (l.outcome != lease_outcome::succeeded && !l.revoked) revoke(id, l.outcome, l.detail);
    if (std::ranges::find(l.succeeded, true) != l.succeeded.end()) begin_rank_wait(l);
    // What was being stopped gets its grace once more: how much had passed is not known. Nodes keep
    // that of programs.
    if (const auto& now_l = *ledger_->lease(id);
        now_l.revoked && now_l.grace_s > 0 && !is_program(*ledger_->job(l.granted.job)->spec))
      grace_until_s_[id] = now() + now_l.grace_s;
  }
  stop_unwanted();
  std::vector<job_id> ids;
  for (const auto& [id, j] : ledger_->jobs()) ids.push_back(id);
  for (auto id : ids) settle(id);
  for (auto id : ids) {
    const auto& j = *ledger_->job(id);
    remember_deadline(j);
    served_.add(j);
    if (is_final(j.state)) training_.ended(id);  // a snapshot has no job_ended entries
  }
  for (const auto& [id, l] : ledger_->leases()) remember_limit(l);
  on_commit_now();
  self_->delayed_send(orchestrator_actor{self_}, nanoseconds_of(cluster_->settings.heartbeat_s),
                      tick{});
}

// -- the policy's decisions
// -----------------------------------------------------------------------------

namespace {

/// What the policy says of a job that it gives up, and what its last attempt ran out of memory
/// with.
std::string reason_to_give_up(const job_record& j, const std::string& why) {
  const bool ran_out = !j.memory.empty() && j.memory.back().out_of_memory;
  return ran_out && !j.detail.empty() ? fmt::format("{}; most recently: {}", why, j.detail) : why;
}

}  // namespace

void orchestrator_state::on_proposal(const proposal& p) {
  proposal_result result{p.number, {}};
  for (const auto& d : p.decisions) {
    const auto* j = ledger_->job(d.job);
    if (d.what == planners::decision::kind::start) {
      if (auto ok = grant(d); !ok) result.refused.emplace_back(d.job, ok.error());
    } else if (d.what == planners::decision::kind::stop) {
      preempt(d.job, "makes room");
    } else if (d.what == planners::decision::kind::move) {
      if (j && j->state == job_state::running)
        preempt(d.job, "is moved", d.grace_s);
      else
        result.refused.emplace_back(
            d.job, reason{reason::kind::stale, fmt::format("job {} is not running", d.job)});
    } else if (j && j->state == job_state::waiting) {
      record(job_ended{d.job, wall(), job_state::failed, reason_to_give_up(*j, d.why.text)});
    }
  }
  for (auto n : std::exchange(to_order_, {})) send_orders(n);
  batch_.when_durable([this, result = std::move(result)] { self_->send(scheduler_, result); });
}

expected<void> orchestrator_state::grant(const planners::decision& d) {
  const auto& c = *cluster_;
  const auto* j = ledger_->job(d.job);
  if (!j || j->state != job_state::waiting)
    return refuse(reason::kind::stale, fmt::format("job {} is not waiting", d.job));
  if (j->suspended) return refuse(reason::kind::stale, fmt::format("job {} is suspended", d.job));
  if (auto ok = planners::fits(c, *idle_, d.how, d.where); !ok) return ok;
  if (auto ok = planners::within_bounds(c, *j->spec, d.where); !ok) return ok;
  if (!d.expected) return refuse(reason::kind::invalid, "the start has no estimate");
  const auto& e = *d.expected;
  lease_granted entry{
      ledger_->next_lease(), d.job,           wall(), d.how, e.bytes_per_gpu, e.iteration_s,
      c.settings.restart_s,  e.out_of_memory, {}};
  if (!j->spec->command.empty()) entry.port = free_port(d.where.front().node, entry.lease);
  for (const auto& share : d.where)
    entry.parts.push_back(
        {share.node, nodes_[share.node].incarnation, ledger_->take_lowest(share.node, share.gpus)});
  if (!record(entry))
    return refuse(reason::kind::stale, fmt::format("lease {} contradicts the ledger", entry.lease));
  for (const auto& share : d.where) {
    nodes_[share.node].leases.insert(entry.lease);
    refresh_idle(share.node);
    to_order_.insert(share.node);
  }
  return {};
}

/// The job is queued again; it gets time to save.
void orchestrator_state::preempt(job_id id, const std::string& detail,
                                 std::optional<double> grace_s,
                                 std::optional<std::uint64_t> request) {
  const auto* j = ledger_->job(id);
  if (!j || j->state != job_state::running) return;
  const auto usual_s = cluster_->settings.preempt_grace_s;
  revoke({j->lease,
          wall(),
          lease_outcome::preempted,
          detail,
          is_training(*j->spec) ? grace_s.value_or(usual_s) : 0,
          {},
          request});
}

/// The time to save of a training is `e`'s, during which it stays ordered; that of a program is its
/// own, and its node keeps it.
void orchestrator_state::revoke(lease_revoked e) {
  const auto id = e.lease;
  const auto* l = ledger_->lease(id);
  if (!l || (l->revoked && l->outcome == e.why)) return;
  const auto& spec = *ledger_->job(l->granted.job)->spec;
  const double ordered_s = is_program(spec) ? 0 : e.grace_s;
  if (is_program(spec)) e.grace_s = grace_of(*cluster_, spec);
  if (!record(e)) return;
  grace_until_s_.erase(id);
  if (ordered_s > 0) grace_until_s_[id] = now() + ordered_s;
  for (const auto& part : ledger_->lease(id)->granted.parts)
    if (nodes_[part.node].leases.contains(id)) send_orders(part.node);
}

orchestrator_actor::behavior_type orchestrator(
    orchestrator_actor::stateful_pointer<orchestrator_state> self, runtime::host h,
    orchestrator_options options) {
  auto& s = self->state;
  begin_actor(self, "orchestrator", [&] { s.start(self, std::move(h), std::move(options)); });
  return {
      [&s](const inbound<node_report>& m) { s.on_node_report(m.from, m.body), s.commit_soon(); },
      [&s](const proposal& p) { s.on_proposal(p), s.commit_soon(); },
      [&s](const inbound<submit_job>& m) {
        s.on_submit_job(m.from, m.sender, m.body), s.commit_soon();
      },
      [&s](const inbound<cancel_job>& m) {
        s.on_cancel_job(m.from, m.sender, m.body), s.commit_soon();
      },
      [&s](const inbound<suspend_job>& m) {
        s.on_suspend_job(m.from, m.sender, m.body), s.commit_soon();
      },
      [&s](const inbound<requeue_job>& m) {
        s.on_requeue_job(m.from, m.sender, m.body), s.commit_soon();
      },
      [&s](const inbound<reconfigure>& m) {
        s.on_reconfigure(m.from, m.sender, m.body), s.commit_soon();
      },
      [&s](const inbound<drain_nodes>& m) {
        s.on_drain_nodes(m.from, m.sender, m.body), s.commit_soon();
      },
      [&s](const inbound<move_job>& m) {
        s.on_move_job(m.from, m.sender, m.body), s.commit_soon();
      },
      [&s](const inbound<gateway_report>& m) {
        s.on_gateway_report(m.from, m.body), s.commit_soon();
      },
      [&s](const inbound<read_log>& m) {
        s.on_read_log(m.from, m.sender, m.body), s.commit_soon();
      },
      [&s](const inbound<training_report>& m) {
        s.on_training_report(m.from, m.body), s.commit_soon();
      },
      [&s](const inbound<query_training>& m) {
        s.on_query_training(m.from, m.body), s.commit_soon();
      },
      [&s](const begin_scheduling& m) { s.on_begin_scheduling(m); },
      [&s](const begin_status& m) { s.on_begin_status(m); },
      [&s](const job_planned& m) { s.on_job_planned(m), s.commit_soon(); },
      [&s](const subscribe& m) { s.on_subscribe(m); },
      [&s](const commit_now&) { s.on_commit_now(); },
      [&s](const tick&) { s.on_tick(), s.commit_soon(); },
  };
}

}  // namespace troupe::actors
