#include "actors/control/leases/lease_manager.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "actors/control/leases/desired_work.hpp"
#include "actors/control/leases/rare_branches.hpp"
#include "actors/control/ledger/progress_report.hpp"
#include "actors/control/ledger/unions.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/fits.hpp"
#include "planners/plans/places.hpp"
#include "planners/replicas/heals.hpp"

namespace troupe::actors {

namespace {

/// "rank 3 on east-2": the program's rank, as its launcher says, or the only one of a node with one
/// GPU; "node east-2" where it is unknown which one of several it is.
std::string rank_text(const cluster& c, const lease_record& l, std::uint32_t part,
                      std::optional<std::uint32_t> rank = {}) {
  const auto& node = c.nodes[l.granted.parts[part].node].name;
  if (!rank) rank = only_rank_of(l.granted.parts, part);
  return rank ? fmt::format("rank {} on {}", *rank, node) : "node " + node;
}

std::vector<job_id> jobs_of(const planners::decision& d) {
  auto jobs = d.with;
  jobs.push_back(d.job);
  std::ranges::sort(jobs);
  return jobs;
}

}  // namespace

// -- grants and revocations

/// The policy decided on a published state. What has changed since makes the decision stale, and
/// the next one will know it; what never fitted is the policy's error, and is refused as well.
expected<void> lease_manager::may_start(const planners::decision& d) const {
  const auto& c = records_.present_cluster();
  std::vector<const job_record*> jobs;
  for (const auto id : jobs_of(d)) {
    const auto* j = records_.book().job(id);
    if (!j || j->state != job_state::waiting)
      return refuse(reason::kind::stale, "job {} is not waiting", id);
    if (j->suspended) return refuse(reason::kind::stale, "job {} is suspended", id);
    if (j->not_before_s && *j->not_before_s > records_.wall())
      return refuse(reason::kind::stale, "job {} waits before its next attempt", id);
    if (auto ok = planners::within_bounds(c, *j->spec, d.where); !ok) return ok;
    jobs.push_back(j);
  }
  if (!d.expected) return refuse(reason::kind::invalid, "the start has no estimate");
  return d.with.empty() ? expected<void>{} : may_run_as_one(jobs, d.kind_of_union);
}

std::optional<lease_id> lease_manager::held_by(std::optional<job_id> job) const {
  const auto* j = job ? records_.book().job(*job) : nullptr;
  return j && records_.book().lease_of(*j) ? std::optional{j->lease} : std::nullopt;
}

/// The idle GPUs and those that pass on from this lease.
planners::idle_index lease_manager::idle_after(lease_id held) const {
  const auto& book = records_.book();
  TROUPE_INVARIANT(book.lease(held), "GPUs pass on from a lease that is held");
  const auto& l = *book.lease(held);
  auto idle = hosts_.idle();
  for (std::size_t i = 0; i < l.ended.size(); ++i) {
    const auto n = l.granted.parts[i].node;
    if (!l.ended[i] && hosts_.is_present(n) && !book.is_drained(n))
      idle.set_idle(n, idle.idle(n) + book.to_succeed(n, held));
  }
  return idle;
}

/// The decision's job, or a union of its jobs, which is recorded.
expected<job_id> lease_manager::job_to_start(const planners::decision& d) {
  if (d.with.empty()) return d.job;
  const auto& book = records_.book();
  const auto members = mapped(jobs_of(d), [&](job_id id) { return book.job(id); });
  TROUPE_INVARIANT(members.size() == d.with.size() + 1, "a union has the jobs of its decision");
  const auto id = book.next_job();
  job_accepted entry{id,
                     0,
                     records_.wall(),
                     spec_of_union(members, d.kind_of_union),
                     "",
                     union_of(members, d.kind_of_union)};
  if (!records_.record(entry))
    return refuse(reason::kind::stale, "union {} contradicts the ledger", id);
  return id;
}

expected<void> lease_manager::grant(const planners::decision& d) {
  const auto& c = records_.present_cluster();
  const auto& book = records_.book();
  if (auto ok = may_start(d); !ok) return ok;
  const auto after = held_by(d.after);
  if (auto ok = planners::fits(c, after ? idle_after(*after) : hosts_.idle(), d.how, d.where); !ok)
    return ok;
  const auto job = job_to_start(d);
  if (!job) return refuse(job.error());
  TROUPE_INVARIANT(book.job(*job) && book.job(*job)->state == job_state::waiting,
                   "a lease is granted to a job that waits");
  const auto& e = *d.expected;
  lease_granted entry{book.next_lease(),
                      *job,
                      records_.wall(),
                      d.how,
                      e.bytes_per_gpu,
                      e.iteration_s,
                      e.start_s.value_or(c.settings.restart_s),
                      e.out_of_memory,
                      {}};
  if (planners::heals(*book.job(*job)->spec, d.how)) entry.heals = true;
  if (facts_of(*book.job(*job)->spec).has_processes)
    entry.port = hosts_.free_port(d.where.front().node, entry.lease);
  for (const auto& share : d.where) {
    TROUPE_INVARIANT(hosts_.is_present(share.node) && !book.is_drained(share.node),
                     "work is given to nodes that are present and not drained");
    TROUPE_INVARIANT(hosts_.node(share.node).incarnation != 0,
                     "a node that gets work has said which process it is");
    entry.parts.push_back({share.node, hosts_.node(share.node).incarnation,
                           book.take_lowest(share.node, share.gpus, after)});
    const auto& devices = entry.parts.back().devices;
    TROUPE_INVARIANT(devices.size() == share.gpus,
                     "a grant takes as many GPUs as fits() has counted");
    if (after && std::ranges::any_of(
                     devices, [&](auto gpu) { return book.holder(share.node, gpu) == *after; }))
      entry.after = after;
  }
  if (!records_.record(entry)) {
    if (!d.with.empty()) mark(rare_branch::refused_union), end_broken_union(*job);
    return refuse(reason::kind::stale, "lease {} contradicts the ledger", entry.lease);
  }
  for (const auto& share : d.where) {
    const bool is_new = hosts_.node(share.node).leases.insert(entry.lease).second;
    TROUPE_INVARIANT(is_new, "a lease has one part on a node");
    hosts_.refresh_idle(share.node);
    orders_.send_later(share.node);
  }
  return {};
}

void lease_manager::preempt(job_id id, end_word why, const std::string& detail,
                            std::optional<double> grace_s, std::optional<std::uint64_t> request) {
  const auto* j = records_.book().job(id);
  if (!j || j->state != job_state::running) return;
  TROUPE_INVARIANT(records_.book().lease_of(*j), "a job that runs holds a lease");
  const auto usual_s = records_.present_cluster().settings.preempt_grace_s;
  auto e = make_revocation(
      j->lease, records_.wall(), why, detail,
      facts_of(*j->spec).stops_by == stop_way::halt ? grace_s.value_or(usual_s) : 0);
  e.request = request;
  revoke(std::move(e));
}

/// For the ledger what the part's end was counts; the entry says it once more.
void lease_manager::revoke_rest(lease_id id) {
  mark(rare_branch::rest_revoked);
  const auto& l = *records_.book().lease(id);
  TROUPE_INVARIANT(l.outcome != lease_outcome::succeeded,
                   "the rest of a lease is revoked for what ended a part of it");
  revoke({id, records_.wall(), l.outcome, l.detail, 0, {}, {}, word_beside(l.outcome, l.word)});
}

/// Members that share weights cannot go on without one: what is trained is the union of their data.
void lease_manager::end_broken_union(job_id id) {
  const auto& book = records_.book();
  const auto* j = book.job(id);
  if (!j || !j->members) return;
  const auto state = j->state;
  if (state == job_state::waiting)
    records_.record(make_job_end(id, records_.wall(), end_word::cancelled, "it got no GPUs"));
  if (state != job_state::running) return;
  const auto& all = j->members->jobs;
  const auto gone = std::ranges::find_if(all, [&](job_id m) {
    const auto* member = book.job(m);
    return !member || member->in != id;
  });
  if (book.members_of(*j).empty())
    mark(rare_branch::no_member_left),
        revoke(j->lease, end_word::cancelled, "all its members have ended");
  else if (j->members->kind == merge_kind::shared && gone != all.end())
    mark(rare_branch::member_left),
        revoke(j->lease, end_word::merged, fmt::format("job {} left the union", *gone));
}

void lease_manager::end_member(job_id id, end_word why, const std::string& detail) {
  const auto& book = records_.book();
  const auto& j = *book.job(id);
  TROUPE_INVARIANT(j.in, "a member leaves the union that it is in");
  const auto of_union = *j.in;
  const auto outcome = outcome_of(why);
  if (!records_.record(
          member_ended{id, records_.wall(), outcome, 0, detail, word_beside(outcome, why)}))
    return;
  TROUPE_INVARIANT(!book.job(id)->in, "a member that has left is in no union");
  settle(id);
  end_broken_union(of_union);
}

/// Members with an adapter of their own end one by one.
void lease_manager::end_done_members(const lease_record& l, std::uint64_t iterations) {
  const auto& book = records_.book();
  const auto& all = *book.job(l.granted.job);
  if (!all.members || all.members->kind != merge_kind::adapters || l.revoked) return;
  const auto members = book.members_of(all);
  std::vector<job_id> over;
  for (const auto* m : members)
    if (m->progress.iterations_done + iterations_in_union(all, m->id, iterations) >=
        m->spec->iterations)
      over.push_back(m->id);
  if (over.size() == members.size()) return;  // they end with the lease
  if (!over.empty()) mark(rare_branch::member_done);
  for (const auto id : over) end_member(id, end_word::finished, "");
}

/// The time to save of a training is `e`'s, during which it stays ordered; that of a program is its
/// own, and its node keeps it.
void lease_manager::revoke(lease_revoked e) {
  const auto& book = records_.book();
  const auto id = e.lease;
  const auto* l = book.lease(id);
  // Revoking again for another reason is recorded: a cancelled job must not be queued again.
  if (!l || (l->revoked && l->outcome == e.why)) return;
  if (l->revoked) mark(rare_branch::revoked_again);
  const auto& spec = *book.job(l->granted.job)->spec;
  const bool by_signal = facts_of(spec).stops_by == stop_way::signal;
  const double ordered_s = by_signal ? 0 : e.grace_s;
  if (by_signal) e.grace_s = grace_of(records_.present_cluster(), spec);
  if (!records_.record(e)) return;
  TROUPE_INVARIANT(book.lease(id) && book.lease(id)->revoked,
                   "a lease that was revoked is held until its parts have ended");
  // A second revocation, such as a cancellation during a preemption, replaces the first one's
  // grace.
  orders_.forget_grace(id);
  if (ordered_s > 0) orders_.keep_until(id, records_.now() + ordered_s);
  for (const auto& part : book.lease(id)->granted.parts)
    if (hosts_.node(part.node).leases.contains(id)) orders_.send(part.node);
}

// -- ends of parts

void lease_manager::on_part_report(node_index n, lease_id id, const node_report& r) {
  const auto& book = records_.book();
  const auto* l = book.lease(id);
  if (!l) return;
  const auto part = part_on(*l, n);
  if (part >= l->ended.size() || l->ended[part]) return;
  // The lease was granted to an earlier process of this node, and died with it.
  if (l->granted.parts[part].incarnation != r.incarnation)
    return mark(rare_branch::earlier_process),
           lose_part(id, part,
                     fmt::format("node {} restarted", records_.present_cluster().nodes[n].name));
  auto it =
      std::find_if(r.parts.begin(), r.parts.end(), [id](const auto& p) { return p.lease == id; });
  if (it == r.parts.end()) {
    // The node does not have it. It may still be going to begin it, by orders that are under way,
    // unless it has already followed later ones, of this epoch, that leave the lease out.
    const auto* without = orders_.first_without(id, n);
    const auto since = without ? *without : 1;
    if (l->revoked && r.epoch == book.epoch() && r.orders >= since)
      mark(rare_branch::never_began), end_part({id,
                                                part,
                                                records_.wall(),
                                                l->outcome,
                                                0,
                                                0,
                                                l->detail,
                                                {},
                                                {},
                                                word_beside(l->outcome, l->word),
                                                {}});
    return;
  }
  if (it->now == part_report::state::running) {
    if (it->word == end_word::node_stopped)
      return preempt(
          l->granted.job, end_word::node_stopped,
          fmt::format("node {} is being stopped", records_.present_cluster().nodes[n].name));
    report_progress(*l, *it);
    return end_done_members(*l, it->iterations);
  }
  if (facts_of(*book.job(l->granted.job)->spec).serves) return end_decoder(*l, part, *it);
  end_part(make_end(*l, part, *it, !r.lost.empty()));
}

/// No report can have renewed a node's lease while no controller ran: that the node then stopped
/// its work, as it must, is nobody's fault.
bool lease_manager::controller_was_away() const {
  return records_.now() - began_s_ < hosts_.silence_limit_s();
}

/// The end of a part by its node's report. `node_is_unable`: it says so, and gets no work.
part_ended lease_manager::make_end(const lease_record& l, std::uint32_t part, const part_report& r,
                                   bool node_is_unable) const {
  using state = part_report::state;
  auto word = word_of(r);
  // A part that was ordered to stop has the lease's outcome, whatever its exit status; one that was
  // killed without an order is lost, and one that its node's end has stopped is not the job's.
  const bool ordered = l.revoked && r.now != state::succeeded && word != end_word::node_stopped &&
                       (r.now != state::stopped || !r.program || r.program->signalled);
  if (!ordered && r.now == state::stopped && word == end_word::lost_node && controller_was_away())
    mark(rare_branch::controller_away), word = end_word::node_stopped;
  auto outcome = outcome_of(word);
  // A start that fails for a reason that it has said is no news; a node that says nothing may be
  // asked the same for ever.
  if (word == end_word::not_started && node_is_unable)
    mark(rare_branch::unable_node), outcome = lease_outcome::preempted;
  if (ordered) {
    outcome = l.outcome;
    word = l.word;
  }
  part_ended e{l.granted.lease,
               part,
               records_.wall(),
               outcome,
               r.iterations,
               r.peak_bytes,
               r.detail,
               {},
               {},
               {},
               {}};
  TROUPE_INVARIANT(!ordered || outcome != lease_outcome::succeeded,
                   "a part that was ordered to stop ends with its lease's reason");
  e.word = word_beside(outcome, word);
  if (!facts_of(*records_.book().job(l.granted.job)->spec).has_processes) return e;
  if (!ordered && is_failure(outcome)) {
    e.rank = r.rank;
    const bool several = l.ended.size() > 1 || l.granted.parts.front().devices.size() > 1;
    if (l.ended.size() > 1 || (several && r.rank))
      e.detail =
          fmt::format("{}: {}", rank_text(records_.present_cluster(), l, part, r.rank), e.detail);
  }
  e.exit_code = r.exit_code;
  e.program = end_of_program(r);
  return e;
}

/// A decoder has no end of its own: it was ordered to stop, or it has failed.
void lease_manager::end_decoder(const lease_record& l, std::uint32_t part, const part_report& r) {
  const bool by_itself = r.now == part_report::state::succeeded;
  const auto word = l.revoked ? l.word : by_itself ? end_word::exit : word_of(r);
  const auto outcome = l.revoked ? l.outcome : outcome_of(word);
  auto e = make_part_end(l.granted.lease, part, records_.wall(), word,
                         by_itself && !l.revoked && r.detail.empty()
                             ? "the decoder ended although its job was not cancelled"
                             : r.detail);
  e.outcome = outcome;
  e.word = word_beside(outcome, word);
  e.peak_bytes = r.peak_bytes;
  end_part(std::move(e));
}

/// A lease is given up for lost when its node is silent, and the node may come back with the work
/// done. Repeating hours of work would be a waste, so its success counts as long as the job waits.
void lease_manager::on_late_success(node_index n, const part_report& p, std::uint64_t incarnation) {
  const auto& book = records_.book();
  std::erase_if(late_, [&](const auto& l) { return !book.job_of_lost_lease(l.first); });
  const auto* known = book.job_of_lost_lease(p.lease);
  if (!known) return;
  const auto& j = *known;
  if (!facts_of(*j.spec).has_end) return;  // it goes on elsewhere
  auto& succeeded = late_.try_emplace(p.lease, j.lost_succeeded).first->second;
  TROUPE_INVARIANT(succeeded.size() == j.lost_parts.size(),
                   "late successes are of the parts of the lost lease");
  for (std::size_t i = 0; i < j.lost_parts.size(); ++i)
    if (j.lost_parts[i].node == n && j.lost_parts[i].incarnation == incarnation)
      succeeded[i] = true;
  if (std::find(succeeded.begin(), succeeded.end(), false) != succeeded.end())
    return mark(rare_branch::part_of_late_success);
  mark(rare_branch::late_success);
  late_.erase(p.lease);
  records_.record(make_job_end(
      j.id, records_.wall(), end_word::finished,
      fmt::format("had succeeded when its node{} came back", j.lost_parts.size() > 1 ? "s" : "")));
}

void lease_manager::end_part(part_ended e) {
  const auto& book = records_.book();
  const auto id = e.lease;
  const auto outcome = e.outcome;
  const auto* l = book.lease(id);
  TROUPE_INVARIANT(l && e.part < l->ended.size() && !l->ended[e.part],
                   "a part ends once, while its lease is held");
  const auto job = l->granted.job;
  const auto n = l->granted.parts[e.part].node;
  if (const auto* j = book.job(job);
      facts_of(*j->spec).has_stages && outcome != lease_outcome::succeeded) {
    // The iterations of the last checkpoint, without those of earlier leases.
    const auto saved = records_.trainings().saved(job, id);
    e.iterations = saved - std::min(saved, j->progress.iterations_done);
  }
  if (!records_.record(e)) return;
  TROUPE_INVARIANT(!book.lease(id) || book.lease(id)->ended[e.part],
                   "a part that was recorded as ended has ended");
  TROUPE_INVARIANT(hosts_.node(n).leases.contains(id), "a part that ends is one of its node's");
  hosts_.node(n).leases.erase(id);
  hosts_.node(n).reached.erase(id);
  orders_.forget_part(id, n);
  hosts_.refresh_idle(n);
  orders_.send_later(n);
  // The other parts cannot continue without it, unless they heal.
  if (const auto* rest = book.lease(id);
      rest && outcome != lease_outcome::succeeded && !rest->revoked)
    ledger::goes_on_without(*rest, e) ? mark(rare_branch::healed_part) : revoke_rest(id);
  if (outcome == lease_outcome::succeeded && book.lease(id)) begin_rank_wait(*book.lease(id));
  orders_.end_grace(id);
  if (!book.lease(id)) starts_.forget(id), saves_.erase(id);
  settle(job);
}

void lease_manager::lose_part(lease_id id, std::uint32_t part, const std::string& detail,
                              end_word why) {
  TROUPE_INVARIANT(records_.book().lease(id), "a part that is lost is of a lease that is held");
  const auto& l = *records_.book().lease(id);
  TROUPE_INVARIANT(part < l.granted.parts.size(), "a part that is lost is one of its lease");
  const auto& reached = hosts_.node(l.granted.parts[part].node).reached;
  auto e = make_part_end(id, part, records_.wall(), why, detail);
  e.outcome = lease_outcome::lost;
  e.word = word_beside(e.outcome, why);
  // Simulated work keeps its checkpoints and a program what it had reported as saved; the rest is
  // done again.
  if (const auto* last = find_in(reached, id)) {
    e.iterations =
        kept_iterations(records_.present_cluster(), records_.book(), l, last->iterations);
    e.program = last->program;
  }
  end_part(std::move(e));
}

void lease_manager::settle(job_id id) {
  const auto& book = records_.book();
  std::vector all{id};
  if (const auto* j = book.job(id); j && j->members)
    all.insert(all.begin(), j->members->jobs.begin(), j->members->jobs.end());
  for (const auto each : all)
    if (auto due = book.due(each, records_.wall())) records_.record(*due);
}

// -- ranks that do not end with the others

void lease_manager::begin_rank_wait(const lease_record& l) {
  const auto& spec = *records_.book().job(l.granted.job)->spec;
  if (facts_of(spec).has_processes && spec.program.rank_wait_s)
    rank_waits_.try_emplace(l.granted.lease, records_.now() + *spec.program.rank_wait_s);
  // Stages that a healed training has left behind do not end with it.
  if (heals(l.granted) && l.succeeded.front())
    rank_waits_.try_emplace(l.granted.lease, records_.now() + 2);
}

/// A rank that hangs while the others have ended holds its GPUs for ever, and no exit status says
/// so.
void lease_manager::end_rank_waits() {
  const auto& book = records_.book();
  std::erase_if(rank_waits_, [&](const auto& w) {
    const auto* l = book.lease(w.first);
    return !l || l->revoked;
  });
  // A copy: revoke() may end leases, and with them waits.
  for (const auto& [id, until_s] : std::map{rank_waits_}) {
    if (records_.now() < until_s) continue;
    const auto& l = *book.lease(id);
    const auto late =
        static_cast<std::uint32_t>(std::ranges::find(l.ended, false) - l.ended.begin());
    const auto first =
        static_cast<std::uint32_t>(std::ranges::find(l.succeeded, true) - l.succeeded.begin());
    TROUPE_INVARIANT(late < l.ended.size(), "a lease that is held has a part that has not ended");
    TROUPE_INVARIANT(first < l.succeeded.size(),
                     "ranks are waited for after one of them has succeeded");
    const auto& c = records_.present_cluster();
    if (heals(l.granted)) {
      mark(rare_branch::left_behind);
      revoke(make_revocation(id, records_.wall(), end_word::preempted,
                             fmt::format("node {} had a stage that its training had left behind",
                                         c.nodes[l.granted.parts[late].node].name)));
      continue;
    }
    auto e = make_revocation(
        id, records_.wall(), end_word::rank_wait,
        fmt::format("{} was still running {:g} s (rank_wait_s) after {} had ended",
                    rank_text(c, l, late), *book.job(l.granted.job)->spec->program.rank_wait_s,
                    rank_text(c, l, first)));
    e.part = late;
    mark(rare_branch::rank_waited);
    revoke(std::move(e));
  }
}

}  // namespace troupe::actors
