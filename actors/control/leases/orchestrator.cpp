#include "actors/control/leases/orchestrator.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "actors/control/ledger/bounded_reports.hpp"
#include "actors/control/ledger/progress_report.hpp"
#include "messages/base/invariant.hpp"
#include "messages/domain/work_kind.hpp"

namespace troupe::actors {

void orchestrator_state::start(orchestrator_actor::pointer self, runtime::host h,
                               controller_options options) {
  links_.self = self;
  options_ = std::move(options);
  const auto file = *options_.cluster;
  parts_ = std::make_unique<parts>(h, options_, links_);
  auto& p = *parts_;
  p.records.listen({[this](const auto& e, const auto& jobs) { on_recorded(e, jobs); },
                    [this](const auto& jobs) { publish(jobs); }});
  p.cluster.choose(file);
  for (const auto& [id, l] : p.records.book().leases())
    for (std::size_t i = 0; i < l.ended.size(); ++i) {
      const auto& part = l.granted.parts[i];
      auto& node = p.hosts.node(part.node);
      // A late report of the node's previous incarnation.
      node.incarnation = std::max(node.incarnation, part.incarnation);
      if (!l.ended[i]) node.leases.insert(id);
    }
  if (p.records.begin_epoch()) {
    // An older copy was accepted under a new id: nodes stop all work of the old one, so none of its
    // leases is running, or will be soon.
    std::vector<std::pair<lease_id, std::uint32_t>> open;
    for (const auto& [lease, l] : p.records.book().leases())
      for (std::uint32_t part = 0; part < l.ended.size(); ++part)
        if (!l.ended[part]) open.emplace_back(lease, part);
    for (const auto& [lease, part] : open)
      p.leases.lose_part(lease, part, "the controller continued with an older copy of its journal",
                         end_word::requeued);  // by the operator who accepted it
  }
  resume();
  on(commit_now{});
  send_later(self, p.records.present_cluster().settings.heartbeat_s, tick{});
}

/// Does what the last controller would have done next. It may have died between two entries of
/// which the second follows from the first: each of these steps follows from the ledger alone, and
/// does nothing where its entry is there.
void orchestrator_state::resume() {
  auto& p = *parts_;
  const auto& book = p.records.book();
  const auto leases = book.leases();
  for (const auto& [id, l] : leases) {
    if (l.outcome != lease_outcome::succeeded && !l.revoked) p.leases.revoke_rest(id);
    if (std::ranges::find(l.succeeded, true) != l.succeeded.end()) p.leases.begin_rank_wait(l);
    // A lease that was being stopped gets its grace once more: how much had passed is unknown.
    // Nodes keep that of programs.
    TROUPE_INVARIANT(book.lease(id),
                     "a lease of which parts run is held after the controller's start");
    if (const auto& now_l = *book.lease(id);
        now_l.revoked && now_l.grace_s > 0 &&
        facts_of(*book.job(l.granted.job)->spec).stops_by != stop_way::signal)
      p.orders.keep_until(id, p.records.now() + now_l.grace_s);
  }
  p.cluster.stop_unwanted();
  std::vector<job_id> ids;
  for (const auto& [id, j] : book.jobs()) ids.push_back(id);
  for (auto id : ids) p.leases.settle(id);
  for (auto id : ids) p.leases.end_broken_union(id);
  for (auto id : ids) {
    const auto& j = *book.job(id);
    p.limits.remember_deadline(j);
    p.served.add(j);
    if (is_final(j.state)) p.records.trainings().ended(id);  // a snapshot has no job_ended entries
  }
  for (const auto& [id, l] : book.leases()) p.limits.remember_limit(l);
}

// -- recording and publishing

void orchestrator_state::on_recorded(const journal_entry& e, const std::vector<job_id>& jobs) {
  auto& p = *parts_;
  const auto& book = p.records.book();
  if (const auto* in = std::get_if<job_accepted>(&e)) {
    p.limits.remember_deadline(*book.job(in->job));
    p.served.add(*book.job(in->job));
  }
  if (const auto* g = std::get_if<lease_granted>(&e))
    p.limits.remember_limit(*book.lease(g->lease));
  for (const auto id : jobs) serving_changed_ = serving_changed_ || p.served.has(id);
}

void orchestrator_state::commit_soon() {
  constexpr std::size_t max_batch = 1000;
  if (serving_changed_) state_serving();
  const auto uncommitted = parts_->records.uncommitted();
  if (uncommitted >= max_batch) return on(commit_now{});
  // The message goes to the end of the mailbox: what is waiting there shares the write.
  if (uncommitted > 0 && !std::exchange(commit_asked_, true))
    links_.self->send(orchestrator_actor{links_.self}, commit_now{});
}

/// A journal grows by commits, so they are when it may have become too long: a cluster in virtual
/// time has no heartbeats, and all jobs of a long trace would stay in its memory.
void orchestrator_state::on(const commit_now&) {
  commit_asked_ = false;
  parts_->records.commit();
  parts_->records.compact(options_.limits.compact_after, options_.limits.keep_ended);
}

void orchestrator_state::publish(const std::vector<job_id>& jobs) {
  if (subscribers_.empty()) return;
  const auto now = state();
  for (const auto& s : subscribers_) links_.self->send(s, state_changed{now, jobs});
}

/// Cheap: the ledger's tables share their structure with the next state's, and the rest is shared
/// until it changes.
std::shared_ptr<const cluster_state> orchestrator_state::state() {
  auto& p = *parts_;
  TROUPE_INVARIANT(p.hosts.nodes() == p.records.present_cluster().nodes.size(),
                   "every node of the cluster has a place in the table of hosts");
  TROUPE_INVARIANT(p.hosts.gateways() == p.records.present_cluster().datacenters.size(),
                   "every datacenter of the cluster has a place in the table of hosts");
  if (checks_slow_invariants()) p.hosts.check_all();
  return std::make_shared<const cluster_state>(
      cluster_state{p.records.shared_cluster(), p.records.book(), p.hosts.nodes_present(),
                    p.hosts.gateways_present(), p.hosts.without_torch(), p.hosts.shared_idle(),
                    p.records.ahead_s()});
}

void orchestrator_state::on(const subscribe& m) {
  on(commit_now{});  // makes the subscriber's first state durable
  links_.self->send(m.who, state_changed{state(), {}});
  subscribers_.push_back(m.who);
}

void orchestrator_state::on(const begin_scheduling& m) {
  on(subscribe{m.scheduler});
  TROUPE_INVARIANT(!links_.scheduler, "one scheduler decides");
  links_.scheduler = m.scheduler;
  send_all_progress();
}

void orchestrator_state::on(const begin_status& m) {
  on(subscribe{m.status});
  links_.status = m.status;
  send_all_progress();
  for (std::uint32_t d = 0; d < parts_->hosts.gateways(); ++d)
    if (const auto& known = parts_->hosts.gateway(d).traffic; known != gateway_traffic{})
      links_.self->send(links_.status, gateway_traffic_changed{d, known});
}

// -- trainers' reports

void orchestrator_state::on(const inbound<training_report>& m) {
  const auto r = bounded(m.body);
  auto& records = parts_->records;
  // Only the trainer of the job's last lease counts. Its last report may arrive after the lease's
  // end.
  const auto* j = records.book().job(r.job);
  if (!j || j->lease != r.lease || j->where.empty() ||
      m.from != node_address(j->where.front().node))
    return commit_soon();
  if (auto kept = records.trainings().to_keep(r))
    records.record(training_progress{std::move(*kept)});
  records.trainings().add(r);
  report_progress(r.job);
  // The trainer repeats the report until then, so what it acknowledges must be durable.
  records.reply(m.from, training_report_ack{r.lease, r.sequence});
  commit_soon();
}

void orchestrator_state::report_progress(job_id job) {
  const auto recent = parts_->records.trainings().recent(job);
  if (recent && !recent->iterations.empty())
    links_.send_progress(progress_of(*recent, parts_->records.wall()));
}

void orchestrator_state::send_all_progress() {
  for (const auto& [id, j] : parts_->records.book().jobs()) report_progress(id);
}

// -- the policy's decisions

namespace {

/// Did its last attempt run out of memory?
bool ran_out(const job_record& j) {
  return !j.memory.empty() && j.memory.back().out_of_memory;
}

/// The policy's reason for giving a job up, and what its last attempt ran out of memory with.
std::string reason_to_give_up(const job_record& j, const std::string& why) {
  return ran_out(j) && !j.detail.empty() ? fmt::format("{}; most recently: {}", why, j.detail)
                                         : why;
}

}  // namespace

/// Decisions are carried out in their order, each on what those before it have left. A refusal
/// stops none of the others: the policy sees the result in the next state, and decides again.
void orchestrator_state::on(const proposal& p) {
  auto& records = parts_->records;
  auto& leases = parts_->leases;
  proposal_result result{p.number, {}};
  for (const auto& d : p.decisions) {
    const auto* j = records.book().job(d.job);
    if (d.what == planners::decision::kind::start) {
      if (auto ok = leases.grant(d); !ok) result.refused.emplace_back(d.job, ok.error());
    } else if (d.what == planners::decision::kind::stop) {
      leases.preempt(d.job, end_word::preempted, "makes room");
    } else if (d.what == planners::decision::kind::move) {
      if (j && j->state == job_state::running)
        leases.preempt(d.job,
                       p.moved_by_users.contains(d.job) ? end_word::moved : end_word::preempted,
                       "is moved", d.grace_s);
      else
        result.refused.emplace_back(
            d.job, reason{reason::kind::stale, fmt::format("job {} is not running", d.job)});
    } else if (j && j->state == job_state::waiting) {
      const auto why = ran_out(*j) ? end_word::out_of_memory : end_word::infeasible;
      records.record(
          make_job_end(d.job, records.wall(), why, reason_to_give_up(*j, d.why.text), j->word));
    }
  }
  parts_->orders.send_due();
  // Until then the scheduler proposes nothing more: its snapshot does not have these leases yet.
  records.when_durable(
      [this, result = std::move(result)] { links_.self->send(links_.scheduler, result); });
  commit_soon();
}

void orchestrator_state::on(const job_planned& m) {
  parts_->clients.on_job_planned(m);
  commit_soon();
}

// -- time

void orchestrator_state::on(const tick&) {
  auto& p = *parts_;
  if (auto ok = p.records.host().journal->check(); !ok) throw std::runtime_error(ok.error().text);
  p.reports.on_tick();
  p.hosts.settle_lease_length();
  p.cluster.on_tick();
  p.limits.end_overdue();
  p.clients.answer_held_submissions();
  p.limits.end_long_runs();
  p.orders.end_graces();
  p.leases.end_rank_waits();
  p.orders.send_due();
  state_serving();
  send_later(links_.self, p.records.present_cluster().settings.heartbeat_s, tick{});
  commit_soon();
}

/// To every front and gateway; repeated, since it may be lost and they may be new. A cluster
/// without fronts has no use for it.
void orchestrator_state::state_serving() {
  serving_changed_ = false;
  auto& records = parts_->records;
  const auto& c = records.present_cluster();
  if (c.fronts.empty()) return;
  auto all = parts_->served.statement(records.book());
  TROUPE_INVARIANT(records.book().epoch() > 0, "statements are of an epoch that has begun");
  all.journal = records.host().journal->id();
  all.epoch = records.book().epoch();
  all.sequence = ++serving_statements_;
  for (std::uint32_t f = 0; f < c.fronts.size(); ++f)
    if (!c.fronts[f].removed) records.reply(front_address(f), all);
  for (std::uint32_t d = 0; d < c.datacenters.size(); ++d)
    if (!c.datacenters[d].removed) records.reply(gateway_address(d), all);
}

}  // namespace troupe::actors
