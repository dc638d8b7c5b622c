// What nodes and trainers report about leases: progress, ends and losses of their parts.

#include "actors/control/orchestrator.hpp"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "actors/control/desired_work.hpp"

namespace troupe::actors {

namespace {

/// "rank 1 on east-2": the number is that of the node's log.
std::string rank_text(const cluster& c, const lease_record& l, std::uint32_t part) {
  return fmt::format("rank {} on {}", part, c.nodes[l.granted.parts[part].node].name);
}

lease_outcome outcome_of(part_report::state s) {
  switch (s) {
    case part_report::state::succeeded:
      return lease_outcome::succeeded;
    case part_report::state::failed:
      return lease_outcome::failed;
    case part_report::state::out_of_memory:
      return lease_outcome::out_of_memory;
    case part_report::state::not_started:
      return lease_outcome::preempted;
    default:
      return lease_outcome::lost;  // the node stopped it by itself: its lease had expired
  }
}

}  // namespace

void orchestrator_state::on_part_report(node_index n, lease_id id, const node_report& r) {
  const auto* l = ledger_->lease(id);
  if (!l) return;
  const auto part = part_on(*l, n);
  if (part >= l->ended.size() || l->ended[part]) return;
  if (l->granted.parts[part].incarnation != r.incarnation)
    return lose_part(id, part, fmt::format("node {} restarted", cluster_->nodes[n].name));
  auto it =
      std::find_if(r.parts.begin(), r.parts.end(), [id](const auto& p) { return p.lease == id; });
  if (it == r.parts.end()) {
    auto out = left_out_.find({id, n});
    const auto since = out == left_out_.end() ? 1 : out->second;
    if (l->revoked && r.epoch == ledger_->epoch() && r.orders >= since)
      end_part({id, part, wall(), l->outcome, 0, 0, l->detail, {}, {}});
    return;
  }
  if (it->now == part_report::state::running) return report_progress(*l, *it);
  const auto& spec = *ledger_->job(l->granted.job)->spec;
  if (is_serving(spec)) return end_decoder(*l, part, *it);
  // A part that was ordered to stop has the lease's outcome, whatever its exit status; one that was
  // killed without an order is lost.
  const bool ordered =
      l->revoked && it->now != part_report::state::succeeded &&
      (it->now != part_report::state::stopped || !it->program || it->program->signalled);
  const auto outcome = ordered ? l->outcome : outcome_of(it->now);
  part_ended e{id, part, wall(), outcome, it->iterations, it->peak_bytes, it->detail, {}, {}};
  if (is_program(spec)) {
    if (!ordered && is_failure(outcome) && l->ended.size() > 1)
      e.detail = fmt::format("{}: {}", rank_text(*cluster_, *l, part), e.detail);
    e.exit_code = it->exit_code;
    e.program = end_of(it->program);
  }
  end_part(std::move(e));
}

/// A decoder has no end of its own: it was ordered to stop, or it has failed.
void orchestrator_state::end_decoder(const lease_record& l, std::uint32_t part,
                                     const part_report& r) {
  const bool by_itself = r.now == part_report::state::succeeded;
  const auto outcome = l.revoked   ? l.outcome
                       : by_itself ? lease_outcome::failed
                                   : outcome_of(r.now);
  const auto detail = by_itself && !l.revoked && r.detail.empty()
                          ? "the decoder ended although its job was not cancelled"
                          : r.detail;
  end_part({l.granted.lease, part, wall(), outcome, 0, r.peak_bytes, detail, {}, {}});
}

/// What a program has written to its $TROUPE_REPORT so far.
void orchestrator_state::report_progress(const lease_record& l, const part_report& r) {
  const auto& j = *ledger_->job(l.granted.job);
  const bool reports = (r.program && r.program->iteration) || r.iterations > 0;
  if (reports) send_progress(progress_of(l, j.iterations_done, r, wall()));
}

/// What a trainer has reported so far.
void orchestrator_state::report_progress(job_id job) {
  const auto recent = training_.recent(job);
  if (recent && !recent->iterations.empty()) send_progress(progress_of(*recent, wall()));
}

void orchestrator_state::send_progress(const job_progress& p) {
  if (scheduler_) self_->send(scheduler_, p);
  if (status_) self_->send(status_, p);
}

/// A part of a lost lease had succeeded. If all its parts have, and no new attempt has begun, the
/// job has succeeded.
void orchestrator_state::on_late_success(node_index n, const part_report& p,
                                         std::uint64_t incarnation) {
  std::erase_if(late_, [this](const auto& l) { return !ledger_->job_of_lost_lease(l.first); });
  const auto* known = ledger_->job_of_lost_lease(p.lease);
  if (!known) return;
  const auto& j = *known;
  if (is_serving(*j.spec)) return;  // it goes on elsewhere
  auto& succeeded = late_.try_emplace(p.lease, j.lost_succeeded).first->second;
  for (std::size_t i = 0; i < j.lost_parts.size(); ++i)
    if (j.lost_parts[i].node == n && j.lost_parts[i].incarnation == incarnation)
      succeeded[i] = true;
  if (std::find(succeeded.begin(), succeeded.end(), false) != succeeded.end()) return;
  late_.erase(p.lease);
  record(job_ended{
      j.id, wall(), job_state::finished,
      fmt::format("had succeeded when its node{} came back", j.lost_parts.size() > 1 ? "s" : "")});
}

void orchestrator_state::end_part(part_ended e) {
  const auto id = e.lease;
  const auto outcome = e.outcome;
  const auto* l = ledger_->lease(id);
  const auto job = l->granted.job;
  const auto n = l->granted.parts[e.part].node;
  if (const auto* j = ledger_->job(job);
      is_training(*j->spec) && outcome != lease_outcome::succeeded) {
    // The iterations of the last checkpoint, without those of earlier leases.
    const auto saved = training_.saved(job, id);
    e.iterations = saved - std::min(saved, j->iterations_done);
  }
  if (!record(e)) return;
  nodes_[n].leases.erase(id);
  left_out_.erase({id, n});
  reached_.erase({id, n});
  refresh_idle(n);
  to_order_.insert(n);
  if (ledger_->lease(id) && outcome != lease_outcome::succeeded && !ledger_->lease(id)->revoked)
    revoke(id, outcome, e.detail);  // the other parts cannot continue without it
  if (outcome == lease_outcome::succeeded && ledger_->lease(id))
    begin_rank_wait(*ledger_->lease(id));
  end_grace(id);
  settle(job);
}

/// A part of a program has ended with status 0: the time of those that run on is limited, if the
/// job says so.
void orchestrator_state::begin_rank_wait(const lease_record& l) {
  const auto& spec = *ledger_->job(l.granted.job)->spec;
  if (is_program(spec) && spec.rank_wait_s)
    rank_waits_.try_emplace(l.granted.lease, now() + *spec.rank_wait_s);
}

void orchestrator_state::end_rank_waits() {
  std::erase_if(rank_waits_, [this](const auto& w) {
    const auto* l = ledger_->lease(w.first);
    return !l || l->revoked;
  });
  for (const auto& [id, until_s] : std::map{rank_waits_}) {
    if (now() < until_s) continue;
    const auto& l = *ledger_->lease(id);
    const auto late =
        static_cast<std::uint32_t>(std::ranges::find(l.ended, false) - l.ended.begin());
    const auto first =
        static_cast<std::uint32_t>(std::ranges::find(l.succeeded, true) - l.succeeded.begin());
    const auto& c = *cluster_;
    revoke({id,
            wall(),
            lease_outcome::failed,
            fmt::format("{} was still running {:g} s (rank_wait_s) after {} had ended",
                        rank_text(c, l, late), *ledger_->job(l.granted.job)->spec->rank_wait_s,
                        rank_text(c, l, first)),
            0,
            late,
            {}});
  }
}

/// Removes a revoked lease from the orders.
void orchestrator_state::end_grace(lease_id id) {
  if (grace_until_s_.erase(id) == 0) return;
  if (const auto* l = ledger_->lease(id))
    for (const auto& part : l->granted.parts) to_order_.insert(part.node);
}

void orchestrator_state::end_graces() {
  const auto all = grace_until_s_;
  for (const auto& [id, until_s] : all)
    if (now() >= until_s || !ledger_->lease(id)) end_grace(id);
}

void orchestrator_state::lose_part(lease_id id, std::uint32_t part, const std::string& detail) {
  const auto& l = *ledger_->lease(id);
  const auto reached = reached_.find({id, l.granted.parts[part].node});
  part_ended e{id, part, wall(), lease_outcome::lost, 0, 0, detail, {}, {}};
  if (reached != reached_.end()) {
    e.iterations = kept_iterations(*cluster_, *ledger_, l, reached->second.iterations);
    e.program = reached->second.program;
  }
  end_part(std::move(e));
}

void orchestrator_state::settle(job_id id) {
  if (auto due = ledger_->due(id, wall())) record(*due);
}

void orchestrator_state::on_training_report(address from, const training_report& r) {
  // Only the trainer of the job's last lease counts. Its last report may arrive after the lease's
  // end.
  const auto* j = ledger_->job(r.job);
  if (!j || j->lease != r.lease || j->where.empty() || from != node_address(j->where.front().node))
    return;
  if (auto kept = training_.to_keep(r)) record(training_progress{std::move(*kept)});
  training_.add(r);
  report_progress(r.job);
  reply(from, training_report_ack{r.lease, r.sequence});
}

void orchestrator_state::on_query_training(address from, const query_training& q) {
  training_reply result{q.request, {}, {}, 0};
  if (auto known = training_.since(q.job, q.after))
    std::tie(result.report, result.position) = std::move(*known);
  else
    result.why = {reason::kind::unknown,
                  fmt::format("no training reports for job {}, or it ended before the last {}",
                              q.job, training_history::kept_ended)};
  reply(from, result);
}

}  // namespace troupe::actors
