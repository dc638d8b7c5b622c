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
#include "messages/admission.hpp"
#include "planners/core/bounds.hpp"
#include "planners/core/fits.hpp"
#include "runtime/host/log.hpp"

namespace troupe::actors {

namespace {

lease_outcome outcome_of(part_report::state s) {
  switch (s) {
    case part_report::state::succeeded:
      return lease_outcome::succeeded;
    case part_report::state::failed:
      return lease_outcome::failed;
    case part_report::state::out_of_memory:
      return lease_outcome::out_of_memory;
    default:
      return lease_outcome::lost;  // the node stopped it by itself: its lease had expired
  }
}

}  // namespace

void orchestrator_state::start(orchestrator_actor::pointer self, runtime::host h,
                               orchestrator_options options) {
  self_ = self;
  host_ = std::move(h);
  options_ = std::move(options);
  const auto& c = *options_.cluster;
  ledger_.emplace(c);
  idle_.emplace(c);
  nodes_.resize(c.nodes.size());
  gateways_.resize(c.datacenters.size());
  nodes_present_ = shared_value{std::vector<bool>(nodes_.size(), false)};
  gateways_present_ = shared_value{std::vector<bool>(gateways_.size(), false)};
  auto replayed = host_.journal->replay([this](const journal_entry& e) {
    if (auto ok = ledger_->apply(e); !ok)
      throw std::runtime_error("the journal contradicts itself: " + ok.error().text);
    if (const auto* progress = std::get_if<training_progress>(&e)) training_.add(progress->report);
    if (const auto* over = std::get_if<job_ended>(&e)) training_.ended(over->job);
  });
  if (!replayed) throw std::runtime_error(replayed.error().text);
  for (node_index n = 0; n < nodes_.size(); ++n) {
    nodes_[n].last_report_s = now();  // silence counts from here, not from the previous epoch
    idle_->set_idle(n, 0);
  }
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
  for (const auto& [id, l] : leases)
    if (l.outcome != lease_outcome::succeeded && !l.revoked) revoke(id, l.outcome, l.detail);
  std::vector<job_id> ids;
  for (const auto& [id, j] : ledger_->jobs()) ids.push_back(id);
  for (auto id : ids) settle(id);
  for (auto id : ids) {
    const auto& j = *ledger_->job(id);
    remember_deadline(j);
    if (is_final(j.state)) training_.ended(id);  // a snapshot has no job_ended entries
  }
  on_commit_now();
  self_->delayed_send(orchestrator_actor{self_}, nanoseconds_of(c.settings.heartbeat_s), tick{});
}

// -- clients' requests
// ---------------------------------------------------------------------------------

void orchestrator_state::on_submit_job(address from, const runtime::caller& who,
                                       const submit_job& s) {
  if (const auto* known = ledger_->job_of_request(s.request)) {
    reply(from, submit_reply{s.request, known->id, {}});
    return;
  }
  // Any client may send this: the sizes that determine the planners' work are checked before the
  // entry is durable.
  if (auto ok = admission::admit(s.spec); !ok) {
    reply(from, submit_reply{s.request, 0, ok.error()});
    return;
  }
  const job_accepted entry{ledger_->next_job(), s.request, wall(), s.spec, who.name};
  record(entry);
  reply(from, submit_reply{s.request, entry.job, {}});
}

void orchestrator_state::on_cancel_job(address from, const runtime::caller& who,
                                       const cancel_job& c) {
  cancel_reply result{c.request, false, {}};
  const auto* j = ledger_->job(c.job);
  if (!j) {
    result.why = {reason::kind::unknown, fmt::format("no job {}", c.job)};
  } else if (!may_act_on(who, j->owner)) {
    result.why = not_theirs(who, j->id, j->owner, "cancel it");
  } else if (is_final(j->state)) {
    result.done = j->state == job_state::cancelled;
    result.why = {reason::kind::invalid,
                  fmt::format("job {} already {}", c.job, to_string(j->state))};
  } else {
    result.done = true;
    const auto why = fmt::format("cancelled by {}", who.name);
    if (ledger_->lease(j->lease))
      revoke(j->lease, lease_outcome::cancelled, why);
    else if (j->state == job_state::waiting)
      record(job_ended{c.job, wall(), job_state::cancelled, why});
  }
  reply(from, result);
}

void orchestrator_state::on_suspend_job(address from, const runtime::caller& who,
                                        const suspend_job& s) {
  suspend_reply result{s.request, false, {}};
  const auto* j = ledger_->job(s.job);
  const auto* verb = s.suspended ? "suspend it" : "resume it";
  if (!j) {
    result.why = {reason::kind::unknown, fmt::format("no job {}", s.job)};
  } else if (!may_act_on(who, j->owner)) {
    result.why = not_theirs(who, j->id, j->owner, verb);
  } else if (is_final(j->state)) {
    result.why = {reason::kind::invalid,
                  fmt::format("job {} already {}", s.job, to_string(j->state))};
  } else if (std::ranges::find(j->suspensions, s.request) != j->suspensions.end()) {
    result.done = true;  // a repeated request, perhaps after a later one
  } else if (!s.suspended && !j->suspended) {
    result.why = {reason::kind::invalid, fmt::format("job {} is not suspended", s.job)};
  } else {
    result.done = true;
    record(job_suspended{s.job, wall(), s.suspended, who.name, s.request});
    if (s.suspended) preempt(s.job, fmt::format("suspended by {}", who.name));
  }
  reply(from, result);
}

/// The scheduler determines where.
void orchestrator_state::on_move_job(address from, const runtime::caller& who, const move_job& m) {
  const auto refuse_it = [&](reason why) {
    reply(from, move_reply{m.request, false, std::move(why), {}, {}});
  };
  const auto* j = ledger_->job(m.job);
  if (!j) return refuse_it({reason::kind::unknown, fmt::format("no job {}", m.job)});
  if (!may_act_on(who, j->owner)) return refuse_it(not_theirs(who, j->id, j->owner, "move it"));
  if (scheduler_) self_->send(scheduler_, move_request{from, m});
}

void orchestrator_state::on_read_log(address from, const runtime::caller& who, const read_log& r) {
  log_chunk no{r.request, 0, r.offset, true, {}};
  const auto refuse_it = [&](reason why) {
    no.why = std::move(why);
    reply(from, no);
  };
  const auto* j = ledger_->job(r.job);
  if (!j) return refuse_it({reason::kind::unknown, fmt::format("no job {}", r.job)});
  if (!may_act_on(who, j->owner))
    return refuse_it(not_theirs(who, j->id, j->owner, "read its log"));
  no.ended = is_final(j->state);
  const auto made = j->tries.size();
  const auto* yet = no.ended ? "never ran: it has no log" : "has not run yet";
  if (made == 0)
    return refuse_it({reason::kind::unavailable, fmt::format("job {} {}", r.job, yet)});
  const auto attempt = r.lease == 0 ? made : r.lease;
  if (attempt > made)
    return refuse_it(
        {reason::kind::invalid, fmt::format("job {} made only {} attempt(s)", r.job, made)});
  const auto& t = j->tries[attempt - 1];
  no.lease = t.lease;
  if (r.part >= t.nodes.size())
    return refuse_it(
        {reason::kind::invalid, fmt::format("attempt {} of job {} ran on {} node(s): no rank {}",
                                            attempt, r.job, t.nodes.size(), r.part)});
  const auto n = t.nodes[r.part];
  if (!(*nodes_present_)[n])
    return refuse_it(
        {reason::kind::unavailable,
         fmt::format("the log is on node {}, which is absent", options_.cluster->nodes[n].name)});
  auto forwarded = r;
  forwarded.lease = t.lease;
  const auto to = node_address(*options_.cluster, n);
  host_.net->send(to, encode(from, to, forwarded));
}

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

// -- the policy's decisions
// -----------------------------------------------------------------------------

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
      record(job_ended{d.job, wall(), job_state::failed, d.why.text});
    }
  }
  for (auto n : std::exchange(to_order_, {})) send_orders(n);
  batch_.when_durable([this, result = std::move(result)] { self_->send(scheduler_, result); });
}

expected<void> orchestrator_state::grant(const planners::decision& d) {
  const auto& c = *options_.cluster;
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

/// The job is queued again; a training gets time to save.
void orchestrator_state::preempt(job_id id, const std::string& detail,
                                 std::optional<double> grace_s) {
  const auto* j = ledger_->job(id);
  if (!j || j->state != job_state::running) return;
  const auto usual_s = options_.cluster->settings.preempt_grace_s;
  revoke(j->lease, lease_outcome::preempted, detail,
         is_training(*j->spec) ? grace_s.value_or(usual_s) : 0);
}

void orchestrator_state::revoke(lease_id id, lease_outcome why, const std::string& detail,
                                double grace_s) {
  const auto* l = ledger_->lease(id);
  if (!l || (l->revoked && l->outcome == why)) return;
  if (!record(lease_revoked{id, wall(), why, detail, grace_s})) return;
  grace_until_s_.erase(id);
  if (grace_s > 0) grace_until_s_[id] = now() + grace_s;
  for (const auto& part : ledger_->lease(id)->granted.parts)
    if (nodes_[part.node].leases.contains(id)) send_orders(part.node);
}

// -- reports of nodes
// -------------------------------------------------------------------------------------

void orchestrator_state::on_part_report(node_index n, lease_id id, const node_report& r) {
  const auto* l = ledger_->lease(id);
  if (!l) return;
  const auto part = part_on(*l, n);
  if (part >= l->ended.size() || l->ended[part]) return;
  if (l->granted.parts[part].incarnation != r.incarnation)
    return lose_part(id, part, fmt::format("node {} restarted", options_.cluster->nodes[n].name));
  auto it =
      std::find_if(r.parts.begin(), r.parts.end(), [id](const auto& p) { return p.lease == id; });
  if (it == r.parts.end()) {
    auto out = left_out_.find({id, n});
    const auto since = out == left_out_.end() ? 1 : out->second;
    if (l->revoked && r.epoch == ledger_->epoch() && r.orders >= since)
      end_part(id, part, l->outcome, 0, 0, l->detail);
    return;
  }
  if (it->now == part_report::state::running) return report_progress(*l, *it);
  const auto& spec = *ledger_->job(l->granted.job)->spec;
  if (is_serving(spec)) return end_decoder(*l, part, *it);
  // A part that was ordered to stop has the lease's outcome, whatever its exit status.
  const auto outcome =
      l->revoked && it->now != part_report::state::succeeded ? l->outcome : outcome_of(it->now);
  const bool program = !spec.command.empty();
  end_part(id, part, outcome, it->iterations, it->peak_bytes, it->detail,
           program ? std::optional{it->exit_code} : std::nullopt);
}

/// A decoder has no end of its own: it was told to stop, or it has failed.
void orchestrator_state::end_decoder(const lease_record& l, std::uint32_t part,
                                     const part_report& r) {
  const bool by_itself = r.now == part_report::state::succeeded;
  const auto outcome = l.revoked   ? l.outcome
                       : by_itself ? lease_outcome::failed
                                   : outcome_of(r.now);
  const auto detail = by_itself && !l.revoked && r.detail.empty()
                          ? "the decoder ended although its job was not cancelled"
                          : r.detail;
  end_part(l.granted.lease, part, outcome, 0, r.peak_bytes, detail);
}

/// What a program has written to its $TROUPE_REPORT so far.
void orchestrator_state::report_progress(const lease_record& l, const part_report& r) {
  const auto& j = *ledger_->job(l.granted.job);
  if (scheduler_ && r.iterations > 0 && !j.spec->command.empty())
    self_->send(scheduler_, progress_of(l, j.iterations_done, r, wall()));
}

/// What a trainer has reported so far.
void orchestrator_state::report_progress(job_id job) {
  const auto recent = training_.recent(job);
  if (scheduler_ && recent && !recent->iterations.empty())
    self_->send(scheduler_, progress_of(*recent, wall()));
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

void orchestrator_state::end_part(lease_id id, std::uint32_t part, lease_outcome outcome,
                                  std::uint64_t iterations, double peak_bytes, std::string detail,
                                  std::optional<std::int32_t> exit_code) {
  const auto* l = ledger_->lease(id);
  const auto job = l->granted.job;
  const auto n = l->granted.parts[part].node;
  if (const auto* j = ledger_->job(job);
      is_training(*j->spec) && outcome != lease_outcome::succeeded) {
    // The iterations of the last checkpoint, without those of earlier leases.
    const auto saved = training_.saved(job, id);
    iterations = saved - std::min(saved, j->iterations_done);
  }
  if (!record(part_ended{id, part, wall(), outcome, iterations, peak_bytes, detail, exit_code}))
    return;
  nodes_[n].leases.erase(id);
  left_out_.erase({id, n});
  reached_.erase({id, n});
  refresh_idle(n);
  to_order_.insert(n);
  if (ledger_->lease(id) && outcome != lease_outcome::succeeded && !ledger_->lease(id)->revoked)
    revoke(id, outcome, detail);  // the other parts cannot continue without it
  end_grace(id);
  settle(job);
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
  const auto kept = reached == reached_.end()
                        ? 0
                        : kept_iterations(*options_.cluster, *ledger_, l, reached->second);
  end_part(id, part, lease_outcome::lost, kept, 0, detail);
}

void orchestrator_state::settle(job_id id) {
  if (auto due = ledger_->due(id, wall())) record(*due);
}

void orchestrator_state::on_training_report(address from, const training_report& r) {
  // Only the trainer of the job's last lease counts. Its last report may arrive after the lease's
  // end.
  const auto* j = ledger_->job(r.job);
  if (!j || j->lease != r.lease || j->where.empty() ||
      from != node_address(*options_.cluster, j->where.front().node))
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
      [&s](const subscribe& m) { s.on_subscribe(m); },
      [&s](const commit_now&) { s.on_commit_now(); },
      [&s](const tick&) { s.on_tick(), s.commit_soon(); },
  };
}

}  // namespace troupe::actors
