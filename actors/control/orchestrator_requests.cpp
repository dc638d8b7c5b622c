// What clients ask of the controller: to submit, cancel, suspend and move jobs, and to read logs.

#include "actors/control/orchestrator.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "actors/protocol/permissions.hpp"
#include "messages/admission/admission.hpp"
#include "messages/codec/codec.hpp"
#include "runtime/host/log.hpp"

namespace troupe::actors {

void orchestrator_state::on_submit_job(address from, const runtime::caller& who,
                                       const submit_job& s) {
  if (const auto* known = ledger_->job_of_request(s.request)) {
    if (const auto held = held_.find(known->id); held != held_.end())
      held->second.to = from;
    else if (known->state == job_state::failed && known->attempts == 0)
      reply(from, submit_reply{s.request, 0, {reason::kind::infeasible, known->detail}});
    else
      reply(from, submit_reply{s.request, known->id, {}});
    return;
  }
  // Any client may send this: the sizes that determine the planners' work are checked before the
  // entry is durable.
  if (auto ok = admission::admit(s.spec); !ok) {
    reply(from, submit_reply{s.request, 0, ok.error()});
    return;
  }
  if (auto ok = served_.may_serve(*ledger_, s.spec, who.name); !ok) {
    reply(from, submit_reply{s.request, 0, ok.error()});
    return;
  }
  const job_accepted entry{ledger_->next_job(), s.request, wall(), s.spec, who.name};
  record(entry);
  if (!scheduler_) return reply(from, submit_reply{s.request, entry.job, {}});
  constexpr double patience_s = 2;  // a job that takes longer to plan is judged later
  held_[entry.job] = {from, s.request, now() + patience_s};
}

/// A job without any plan is refused. It has been accepted, so that it is kept as a failed one,
/// which can be explained.
void orchestrator_state::on_job_planned(const job_planned& m) {
  const auto held = held_.extract(m.job);
  if (!held) return;
  const auto& to = held.mapped();
  const auto* j = ledger_->job(m.job);
  if (!m.never || !j || j->state != job_state::waiting)
    return reply(to.to, submit_reply{to.request, m.job, {}});
  record(job_ended{m.job, wall(), job_state::failed, m.never->text});
  reply(to.to, submit_reply{to.request, 0, *m.never});
}

void orchestrator_state::answer_held_submissions() {
  for (auto it = held_.begin(); it != held_.end();) {
    const auto& [job, held] = *it;
    if (now() < held.until_s) {
      ++it;
      continue;
    }
    reply(held.to, submit_reply{held.request, job, {}});
    it = held_.erase(it);
  }
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

void orchestrator_state::on_requeue_job(address from, const runtime::caller& who,
                                        const requeue_job& r) {
  requeue_reply result{r.request, false, {}};
  const auto* j = ledger_->job(r.job);
  if (!j) {
    result.why = {reason::kind::unknown, fmt::format("no job {}", r.job)};
  } else if (!may_act_on(who, j->owner)) {
    result.why = not_theirs(who, j->id, j->owner, "requeue it");
  } else if (std::ranges::find(j->suspensions, r.request) != j->suspensions.end()) {
    result.done = true;  // a repeated request, perhaps after it has started again
  } else if (is_final(j->state)) {
    result.why = {reason::kind::invalid,
                  fmt::format("job {} already {}", r.job, to_string(j->state))};
  } else if (j->state != job_state::running) {
    result.why = {reason::kind::invalid,
                  fmt::format("job {} is not running: it is {}", r.job, to_string(j->state))};
  } else {
    result.done = true;
    preempt(r.job, fmt::format("requeued by {}", who.name), {}, r.request);
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
         fmt::format("the log is on node {}, which is absent", cluster_->nodes[n].name)});
  auto forwarded = r;
  forwarded.lease = t.lease;
  const auto to = node_address(n);
  host_.net->send(to, encode(from, to, forwarded));
}

}  // namespace troupe::actors
