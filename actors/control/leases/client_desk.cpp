#include "actors/control/leases/client_desk.hpp"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "actors/control/ledger/public_detail.hpp"
#include "actors/control/ledger/unions.hpp"
#include "actors/protocol/permissions.hpp"
#include "messages/admission/admission.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "messages/codec/codec.hpp"

namespace troupe::actors {

namespace {

reason already_over(const job_record& j) {
  return {reason::kind::invalid, fmt::format("job {} already {}", j.id, to_string(j.state))};
}

/// Was this request carried out before?
bool is_repeated(const job_record& j, std::uint64_t request) {
  return std::ranges::find(j.suspensions, request) != j.suspensions.end();
}

/// Does it wait before its next attempt?
bool waits_for_retry(const job_record& j) {
  return j.state == job_state::waiting && j.not_before_s.has_value();
}

/// Why a job is stopped, for people. All jobs that are merged with it stop, too, and say so.
std::string stopped_text(const ledger& book, const job_record& j, const char* what,
                         const runtime::caller& who) {
  const auto merged = merged_with_text(book, j);
  return merged.empty() ? fmt::format("{} by {}", what, who.name)
                        : fmt::format("job {}, {}, was {} by {}", j.id, merged, what, who.name);
}

}  // namespace

expected<const job_record*> client_desk::job_for(const runtime::caller& who, job_id id,
                                                 const char* what) const {
  const auto* j = records_.book().job(id);
  if (!j || j->members) return refuse(reason::kind::unknown, "no job {}", id);
  if (!may_act_on(who, j->owner)) return refuse(not_theirs(who, j->id, j->owner, what));
  return j;
}

// -- submissions

void client_desk::on(const inbound<submit_job>& m) {
  const auto& [from, s] = std::tie(m.from, m.body);
  const auto& book = records_.book();
  if (const auto* known = book.job_of_request(s.request)) {
    // Still being planned: the answer goes to the sender of the latest repetition.
    if (auto* held = find_in(held_, known->id))
      held->to = from;
    else if (known->state == job_state::failed && known->progress.attempts == 0)
      records_.reply(from, submit_reply{s.request, 0, {reason::kind::infeasible, known->detail}});
    else
      records_.reply(from, submit_reply{s.request, known->id, {}});
    return;
  }
  // Any client may send this: the sizes that determine the planners' work are checked before the
  // entry is durable.
  if (auto ok = admission::admit(s.spec); !ok) {
    records_.reply(from, submit_reply{s.request, 0, ok.error()});
    return;
  }
  if (auto ok = served_.may_serve(book, s.spec, m.sender.name); !ok) {
    records_.reply(from, submit_reply{s.request, 0, ok.error()});
    return;
  }
  const job_accepted entry{book.next_job(), s.request, records_.wall(), s.spec, m.sender.name};
  const auto limit_mib = records_.present_cluster().settings.owner_mib.value_or(default_owner_mib);
  if (auto ok = usage_.add(book, entry, limit_mib); !ok) {
    records_.reply(from, submit_reply{s.request, 0, ok.error()});
    return;
  }
  const bool accepted = records_.record(entry);
  TROUPE_INVARIANT(accepted && book.job(entry.job),
                   "a job that was admitted is in the ledger before it is answered");
  TROUPE_INVARIANT(book.job_of_request(s.request) == book.job(entry.job),
                   "a repeated submission finds the job that the first one made");
  if (!links_.scheduler) return records_.reply(from, submit_reply{s.request, entry.job, {}});
  constexpr double patience_s = 2;  // a job that takes longer to plan is judged later
  held_[entry.job] = {from, s.request, records_.now() + patience_s};
}

/// A job without any plan is refused. It has been accepted, so that it is kept as a failed one,
/// which can be explained.
void client_desk::on_job_planned(const job_planned& m) {
  const auto held = held_.extract(m.job);
  if (!held) return;
  const auto& to = held.mapped();
  const auto* j = records_.book().job(m.job);
  if (!m.never || !j || j->state != job_state::waiting)
    return records_.reply(to.to, submit_reply{to.request, m.job, {}});
  records_.record(make_job_end(m.job, records_.wall(), end_word::infeasible, m.never->text));
  records_.reply(to.to, submit_reply{to.request, 0, *m.never});
}

/// An estimator that is busy for minutes must not make `troupe submit` look dead. The job stays
/// accepted, and is ended later if it has no plan.
void client_desk::answer_held_submissions() {
  std::erase_if(held_, [this](const auto& of_job) {
    const auto& [job, held] = of_job;
    if (records_.now() < held.until_s) return false;
    records_.reply(held.to, submit_reply{held.request, job, {}});
    return true;
  });
}

// -- requests for one job

/// A repetition finds the job ended, and is answered as if it had ended it: cancelling is
/// idempotent without a remembered number.
void client_desk::on(const inbound<cancel_job>& m) {
  const auto& c = m.body;
  cancel_reply result{c.request, false, {}};
  if (const auto found = job_for(m.sender, c.job, "cancel it"); !found) {
    result.why = found.error();
  } else if (const auto& j = **found; is_final(j.state)) {
    result.done = j.state == job_state::cancelled;
    result.why = already_over(j);
  } else {
    result.done = true;
    const auto why = fmt::format("cancelled by {}", m.sender.name);
    // A job with GPUs ends when they are released; a waiting one has nothing to release.
    if (j.in)
      leases_.end_member(c.job, end_word::cancelled, why);
    else if (records_.book().lease_of(j))
      leases_.revoke(j.lease, end_word::cancelled, why);
    else if (j.state == job_state::waiting)
      records_.record(make_job_end(c.job, records_.wall(), end_word::cancelled, why));
  }
  records_.reply(m.from, result);
}

void client_desk::on(const inbound<suspend_job>& m) {
  const auto& s = m.body;
  suspend_reply result{s.request, false, {}};
  const auto found = job_for(m.sender, s.job, s.suspended ? "suspend it" : "resume it");
  if (!found) {
    result.why = found.error();
  } else if (const auto& j = **found; is_final(j.state)) {
    result.why = already_over(j);
  } else if (is_repeated(j, s.request)) {
    result.done = true;  // perhaps after a later one, which it must not undo
  } else if (!s.suspended && !j.suspended && !waits_for_retry(j)) {
    result.why = {reason::kind::invalid, fmt::format("job {} is not suspended", s.job)};
  } else {
    result.done = true;
    const auto why = stopped_text(records_.book(), j, "suspended", m.sender);
    records_.record(job_suspended{s.job, records_.wall(), s.suspended, m.sender.name, s.request});
    if (s.suspended) leases_.preempt(s.job, end_word::suspended, why);
  }
  records_.reply(m.from, result);
}

void client_desk::on(const inbound<requeue_job>& m) {
  const auto& r = m.body;
  requeue_reply result{r.request, false, {}};
  if (const auto found = job_for(m.sender, r.job, "requeue it"); !found) {
    result.why = found.error();
  } else if (const auto& j = **found; is_repeated(j, r.request)) {
    result.done = true;  // perhaps after it has started again
  } else if (is_final(j.state)) {
    result.why = already_over(j);
  } else if (waits_for_retry(j) && !j.suspended) {  // what resumes a job ends its wait
    result.done = true;
    records_.record(job_suspended{r.job, records_.wall(), false, m.sender.name, r.request});
  } else if (j.state != job_state::running) {
    result.why = {reason::kind::invalid,
                  fmt::format("job {} is not running: it is {}", r.job, to_string(j.state))};
  } else {
    result.done = true;
    leases_.preempt(r.job, end_word::requeued,
                    stopped_text(records_.book(), j, "requeued", m.sender), {}, r.request);
  }
  records_.reply(m.from, result);
}

/// The scheduler determines where.
void client_desk::on(const inbound<move_job>& m) {
  if (const auto found = job_for(m.sender, m.body.job, "move it"); !found)
    records_.reply(m.from, move_reply{m.body.request, false, found.error(), {}, {}});
  else if (links_.scheduler)
    links_.self->send(links_.scheduler, move_request{m.from, m.body, m.sender.name});
}

// -- logs and curves

/// Answered by the node that has the log, in the client's name: logs do not pass the controller.
void client_desk::on(const inbound<read_log>& m) {
  const auto& r = m.body;
  log_chunk none{r.request, 0, r.offset, true, {}};
  const auto refuse_it = [&](reason why) {
    none.why = std::move(why);
    records_.reply(m.from, none);
  };
  const auto found = job_for(m.sender, r.job, "read its log");
  if (!found) return refuse_it(found.error());
  const auto& j = **found;
  none.ended = is_final(j.state);
  const auto made = j.tries.size();
  const auto* yet = none.ended ? "never ran: it has no log" : "has not run yet";
  if (made == 0)
    return refuse_it({reason::kind::unavailable, fmt::format("job {} {}", r.job, yet)});
  // In the request `lease` is the number of an attempt; the node knows leases only.
  const auto attempt = r.lease == 0 ? made : r.lease;
  if (attempt > made)
    return refuse_it(
        {reason::kind::invalid, fmt::format("job {} made only {} attempt(s)", r.job, made)});
  TROUPE_INVARIANT(attempt >= 1 && attempt <= made, "an attempt's log is of one that was made");
  const auto t = j.tries.all()[attempt - 1];
  none.lease = t.lease;
  if (r.part >= t.nodes.size())
    return refuse_it(
        {reason::kind::invalid, fmt::format("attempt {} of job {} ran on {} node(s): no rank {}",
                                            attempt, r.job, t.nodes.size(), r.part)});
  const auto n = t.nodes[r.part];
  if (!hosts_.is_present(n))
    return refuse_it(
        {reason::kind::unavailable, fmt::format("the log is on node {}, which is absent",
                                                records_.present_cluster().nodes[n].name)});
  auto forwarded = r;
  forwarded.lease = t.lease;
  const auto to = node_address(n);
  records_.host().net->send(to, encode(m.from, to, forwarded));
}

void client_desk::on(const inbound<query_training>& m) {
  const auto& q = m.body;
  training_reply result{q.request, {}, {}, 0};
  if (auto known = records_.trainings().since(q.job, q.after))
    std::tie(result.report, result.position) = std::move(*known);
  else
    result.why = {reason::kind::unknown,
                  fmt::format("no training reports for job {}, or it ended before the last {}",
                              q.job, training_history::kept_ended)};
  // Others see the curve, and not what its layers have said.
  const auto* j = records_.book().job(q.job);
  if (!j || !may_act_on(m.sender, j->owner))
    for (auto& sentence : result.report.events) sentence = public_detail(sentence);
  records_.reply(m.from, result);
}

}  // namespace troupe::actors
