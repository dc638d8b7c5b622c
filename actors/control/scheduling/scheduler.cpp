#include "actors/control/scheduling/scheduler.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "actors/control/ledger/elastic_attempts.hpp"
#include "actors/control/ledger/progress_report.hpp"
#include "actors/control/ledger/unions.hpp"
#include "actors/control/scheduling/job_views.hpp"
#include "actors/control/scheduling/slow_decisions.hpp"
#include "actors/protocol/messenger.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/invariant.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "planners/policy/placement.hpp"
#include "runtime/host/stopwatch.hpp"

namespace troupe::actors {

void scheduler_state::start(scheduler_actor::pointer self, runtime::host h,
                            controller_options options, orchestrator_actor orchestrator,
                            estimator_actor estimator) {
  self_ = self;
  host_ = std::move(h);
  options_ = std::move(options);
  orchestrator_ = std::move(orchestrator);
  estimator_ = std::move(estimator);
  self_->send(orchestrator_, begin_scheduling{scheduler_actor{self_}});
  const auto& how = cluster().settings;
  // A node reports within a heartbeat of noticing the new controller; after three, or when leases
  // would expire, the nodes that are still missing are taken for absent.
  send_later(self_, std::min(3 * how.heartbeat_s, how.lease_s), startup_over{});
  if (options_.policy->traits().round_s > 0) self_->send(scheduler_actor{self_}, tick{});
}

// -- the state of the cluster

void scheduler_state::on(const state_changed& m) {
  if (!state_ || state_->cluster->version != m.now->cluster->version) {
    begin_with(m.now);
  } else {
    // Only the jobs that have changed are looked at: with 10,000 jobs a state comes many times a
    // second.
    const auto before = std::exchange(state_, m.now);
    TROUPE_INVARIANT(before->book.epoch() <= state_->book.epoch(),
                     "a published state is of the same epoch or a later one");
    TROUPE_INVARIANT(before->book.next_lease() <= state_->book.next_lease(),
                     "published states arrive in their order");
    TROUPE_INVARIANT(before->book.latest_s() <= state_->book.latest_s(),
                     "the time of published states does not fall");
    for (const auto id : m.jobs) on_job_changed(id, before->book.job(id));
    const bool same_nodes = before->nodes_present == state_->nodes_present &&
                            before->without_torch == state_->without_torch &&
                            before->book.drained() == state_->book.drained();
    if (same_nodes) return;
  }
  list_unusable();
  const auto is_missing = [&](const planners::unusable_node& u) {
    return !(*state_->nodes_present)[u.node] && !cluster().nodes[u.node].removed;
  };
  if (std::ranges::none_of(unusable_, is_missing)) on(startup_over{});
  something_changed();
}

void scheduler_state::list_unusable() {
  TROUPE_INVARIANT(state_->nodes_present->size() == cluster().nodes.size(),
                   "a published state says of each node whether it is present");
  unusable_.clear();
  for (node_index n = 0; n < state_->nodes_present->size(); ++n)
    if (!(*state_->nodes_present)[n])
      unusable_.push_back({n, "absent"});
    else if (book().is_drained(n))
      unusable_.push_back({n, "drained"});
}

/// The first state, or the first of another cluster: plans and reservations of the one before do
/// not know what has joined, and may need what has left.
void scheduler_state::begin_with(std::shared_ptr<const cluster_state> now) {
  const bool first = !state_;
  state_ = std::move(now);
  plans_.clear();
  wanted_.clear();
  waiting_.clear();
  running_.clear();
  view_changes_.note_all(new_view_number());
  unions_.clear();
  arrivals_.clear();  // their plans are for the cluster before
  moving_.clear();
  stopping_.clear();
  not_plain_.clear();
  pending_ = {};
  backoffs_.clear();
  for (const auto& [id, j] : book().jobs())
    if (!is_final(j.state)) on_job_changed(id, &j);  // ended jobs get no plans
  if (first) begin_placing();
}

/// `before`: the job in the previous state; null: it is new.
void scheduler_state::on_job_changed(job_id id, const job_record* before) {
  const auto* j = book().job(id);
  if (!j || is_final(j->state)) wanted_.erase(id);
  if (!j) {
    plans_.erase(id);
    progress_.erase(id);
    return;
  }
  if (j->members) return update_union(*j);
  // Policies do not see a new job before its plans are known.
  if (!before && j->state == job_state::waiting && !j->suspended) return want_plans(*j);
  const bool granted = before && before->lease != j->lease;
  const bool was_reserved = granted && pending_.find(id);
  if (granted) pending_.remove(id);
  update_views(*j);
  if (was_reserved) starts_may_be_due();
  // In between it has released other GPUs.
  if (granted && before->state != job_state::waiting) something_changed();
}

void scheduler_state::on(const plans_reply& p) {
  const auto* j = book().job(p.job);
  if (!j || is_final(j->state) || p.memory_factor != j->history.factor) return;
  // The estimator plans for the cluster that it knows. Its plans are for another one, so it is
  // asked again.
  if (p.cluster != cluster().version) {  // it was asked just before the cluster changed
    wanted_.erase(p.job);
    return want_plans(*j);
  }
  // Once for each job: a job that is planned again for its memory has not arrived again.
  if (!plans_.contains(p.job)) remember_arrival(*j, p);
  TROUPE_INVARIANT(p.plans, "an estimate has a list of plans, if only an empty one");
  plans_[p.job] = p;
  wanted_.erase(p.job);
  if (status_) self_->send(status_, p);  // before the orchestrator answers the submitter
  const bool never = p.plans->empty() && p.why.code == reason::kind::infeasible;
  self_->send(orchestrator_, job_planned{p.job, never ? std::optional{p.why} : std::nullopt});
  update_views(*j);
}

void scheduler_state::on(const progress_report& p) {
  auto& known = progress_[p.job];
  take_newer(known, p);
  auto* view = find_in(running_, p.job);
  if (!view) view = find_in(unions_, p.job);
  const auto* j = book().job(p.job);
  if (!j || !view) return;
  view->reported = reported_progress_of(*j, known);
  view->number = new_view_number();
  view_changes_.note(p.job);
  if (!j->elastic || known.lease != j->lease) return;
  // Policies keep what they computed for a list of plans, so small differences make no new one.
  const auto now = record_by_now(book(), *j, &known);
  if (!view->elastic || have_other_rates(now->costs, view->elastic->costs)) update_views(*j);
}

/// At most one request for each job and memory factor is under way.
void scheduler_state::want_plans(const job_record& j) {
  if (auto it = wanted_.find(j.id); it != wanted_.end() && it->second == j.history.factor) return;
  wanted_[j.id] = j.history.factor;
  self_->send(estimator_, plans_request{j.id, j.spec, j.history.factor, scheduler_actor{self_}});
}

/// A union is never planned: what it runs was decided for its members.
void scheduler_state::update_union(const job_record& j) {
  if (j.state == job_state::running)
    unions_.insert_or_assign(j.id, view_of(cluster(), j, book(), plans_, progress_));
  else
    unions_.erase(j.id);
  if (j.state == job_state::stopping && book().lease(j.lease))
    stopping_.insert(j.id);
  else
    stopping_.erase(j.id);
  if (j.state != job_state::running) something_changed();
}

/// Updates the job's entry in the lists of waiting and running jobs. Policies do not see members of
/// a union: only the union could be stopped.
void scheduler_state::update_views(const job_record& j) {
  // Policies do not see a job without plans.
  const auto* plans = find_in(plans_, j.id);
  const bool known = plans && plans->memory_factor == j.history.factor;
  if (!known && !is_final(j.state)) want_plans(j);
  const bool held = j.suspended || waits_for_retry(j);
  if (j.state == job_state::running || is_final(j.state) || held) pending_.remove(j.id);
  if (waits_for_retry(j)) {
    backoffs_.emplace(*j.not_before_s, j.id);
    set_backoff_timer();
  }
  const auto* next = pending_.find(j.id);
  const auto keep = [&](planners::job_views& views, job_state s) {
    if (known && !next && !j.in && j.state == s && !(s == job_state::waiting && held))
      views.insert_or_assign(j.id, view_of(cluster(), j, book(), plans_, progress_));
    else
      views.erase(j.id);
  };
  keep(waiting_, job_state::waiting);
  keep(running_, job_state::running);
  view_changes_.note(j.id);
  // A job with a reserved start is neither waiting nor running for the policy, which would place it
  // again or count its old GPUs.
  moving_.erase(j.id);
  if (next) {
    auto& v = moving_.emplace(j.id, view_of(cluster(), j, book(), plans_, progress_)).first->second;
    v.how = next->how;
    v.where = next->where;
    v.number = new_view_number();
  }
  note_kind(j.id);
  if (j.state == job_state::stopping && !j.in)
    stopping_.insert(j.id);
  else
    stopping_.erase(j.id);
  const bool is_new = j.state == job_state::waiting && j.progress.attempts == 0;
  if (j.state == job_state::running) return;
  // Nothing is free for the policy yet, and it has decided what comes next.
  if (j.state == job_state::stopping || next) return starts_may_be_due();
  is_new ? job_arrived() : something_changed();
}

// -- decisions

/// All other changes are decided at once, and new jobs with them. The first of several determines
/// when, since an earlier call replaces a later one.
void scheduler_state::job_arrived() {
  if (options_.gather_s <= 0 || options_.policy->traits().round_s > 0) return something_changed();
  changed_s_ = host_.clock->now_s();
  decide_again_in(options_.gather_s);
}

void scheduler_state::decide_soon() {
  changed_ = true;
  wake();
}

/// A job that the policy has stopped or moved stops or starts: reserved starts may have become
/// possible, but the policy is not asked again, since it has decided what comes next. On Philly's
/// trace a third of the calls were of this kind.
void scheduler_state::starts_may_be_due() {
  changed_s_ = host_.clock->now_s();
  starts_due_ = true;
  wake();
}

void scheduler_state::wake() {
  // All that is in the mailbox by then is decided on together. While a proposal is under way
  // nothing is decided: the state does not show its leases yet, and they would be granted twice.
  if (in_flight_ || asked_) return;
  asked_ = true;
  self_->send(scheduler_actor{self_}, decide_now{});
}

void scheduler_state::on(const startup_over&) {
  if (!std::exchange(starting_, false)) return;
  show_counts();
  begin_placing();
}

void scheduler_state::begin_placing() {
  if (!placing()) return;
  if (std::exchange(round_skipped_, false)) begin_round();
  something_changed();
}

void scheduler_state::on(const decide_now&) {
  asked_ = false;
  if (in_flight_ || !placing()) return;
  const bool changed = std::exchange(changed_, false);
  if (!std::exchange(starts_due_, false) && !changed) return;
  withdraw_hopeless();
  // Starts that were decided earlier come first, since their GPUs are reserved, then what users ask
  // for; the policy decides on what they leave.
  if (start_pending()) return changed ? decide_soon() : starts_may_be_due();
  if (make_moves()) return decide_soon();  // then decide again
  if (options_.policy->traits().round_s > 0) return;
  // A moved job may leave GPUs that no start is reserved for.
  const auto idle = pending_.rest(*state_->idle, not_kept_).total_idle();
  if (changed || idle > shown_idle_) return begin_round();
  shown_idle_ = idle;
  guarded([&] { return ask_again(policy_snapshot()); });
}

void scheduler_state::begin_round() {
  if (!placing()) {
    round_skipped_ = true;
    return;
  }
  const auto s = policy_snapshot();
  shown_idle_ = s.idle.total_idle();
  if (in_flight_ || (s.waiting.empty() && s.running.empty())) return;
  notes_.clear();
  const runtime::stopwatch watch;
  const double began_s = host_.clock->now_s();
  auto decisions = ask_policy(s);
  const double took_s = host_.clock->now_s() - began_s;
  planners::follow(kept_, s, decisions);
  count(decisions, took_s);
  log_if_slow(*options_.policy, s, took_s);
  if (options_.on_decision) options_.on_decision(watch.us(), decisions.size());
  propose(std::move(decisions));
}

/// A policy that fails costs its round, and not the controller, which would fail again at each
/// start.
template <class Call>
auto scheduler_state::guarded(Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& e) {
    faults_.on_fault(e.what(), host_.clock->now_s());
    if (options_.policy->traits().round_s == 0) decide_again_in(10);
    return {};
  }
}

std::vector<planners::decision> scheduler_state::ask_policy(const planners::snapshot& s) {
  return guarded([&] {
    auto decisions = options_.policy->decide(s, host_.random);
    ask_again(s);
    faults_.on_decided();
    return decisions;
  });
}

/// Sets the timer of a policy that is not asked in rounds; true: it is set, or not needed.
bool scheduler_state::ask_again(const planners::snapshot& s) {
  if (options_.policy->traits().round_s == 0) decide_again_in(options_.policy->decide_again_s(s));
  return true;
}

/// `took_s` is by the host's clock: the counts must not differ between virtual runs.
void scheduler_state::count(const std::vector<planners::decision>& decisions, double took_s) {
  using kind = planners::decision::kind;
  ++counts_.rounds;
  counts_.rounds_s += took_s;
  for (const auto& d : decisions) {
    counts_.started += d.what == kind::start;
    counts_.moved += d.what == kind::move;
    counts_.stopped += d.what == kind::stop;
  }
  show_counts();
}

namespace {

/// The cluster as a decision finds it.
placement_note note_of(const cluster_state& s) {
  placement_note now{{}, *s.nodes_present};
  const auto nodes = static_cast<node_index>(now.present.size());
  now.idle.reserve(nodes);
  for (node_index n = 0; n < nodes; ++n) now.idle.push_back(s.idle->idle(n));
  if (!s.book.drained().empty())
    for (node_index n = 0; n < nodes; ++n) now.drained.push_back(s.book.is_drained(n));
  return now;
}

}  // namespace

void scheduler_state::propose(std::vector<planners::decision> decisions) {
  if (decisions.empty()) return;
  TROUPE_INVARIANT(!in_flight_, "one proposal is under way at a time");
  proposal p;
  p.number = ++proposals_;
  const bool explains = status_ && options_.explains;
  placements_proposed shown;
  auto now = explains ? note_of(*state_) : placement_note{};
  for (auto& d : decisions) {
    // A policy may change its mind about a start whose GPUs have not become free yet.
    if (pending_.find(d.job)) withdraw(d.job);  // replaces the earlier decision
    if (d.what != planners::decision::kind::start && d.what != planners::decision::kind::move)
      continue;
    if (const auto* j = book().job(d.job); j && !d.expected)
      d.expected = planners::estimate_start(
          cluster(), view_of(cluster(), *j, book(), plans_, progress_), d.how, d.where);
    // A refused start on GPUs that are about to be free, or of several jobs, is not reserved: it is
    // decided again.
    if (d.with.empty() && !d.after) proposed_[d.job] = d;
    if (proposed_moves_.contains(d.job)) p.moved_by_users.insert(d.job);
    if (explains) {
      auto note = now;
      note.why = d.why.text;
      note.moved = d.what == planners::decision::kind::move;
      if (const auto* j = book().job(d.job); j && note.moved)
        for (const auto& share : j->where) note.idle[share.node] += share.gpus;
      for (const auto member : d.with) shown.notes[member] = note;
      shown.notes[d.job] = std::move(note);
    }
    for (const auto& share : d.where) {
      TROUPE_INVARIANT(share.node < cluster().nodes.size(),
                       "a decision names nodes of the cluster that it was made for");
      if (explains) now.idle[share.node] -= std::min(now.idle[share.node], share.gpus);
    }
  }
  p.decisions = std::move(decisions);
  // Until proposal_result. The orchestrator answers every proposal, or ends, and this actor with
  // it.
  in_flight_ = true;
  if (!shown.notes.empty()) self_->send(status_, std::move(shown));
  self_->send(orchestrator_, std::move(p));
}

void scheduler_state::on(const proposal_result& s) {
  TROUPE_INVARIANT(in_flight_ && s.number == proposals_,
                   "a result belongs to the proposal in flight");
  in_flight_ = false;
  counts_.refused += s.refused.size();
  if (!s.refused.empty()) show_counts();
  using kind = planners::decision::kind;
  for (auto& [job, d] : std::exchange(proposed_, {})) {
    const auto refused = std::ranges::find(s.refused, job, &std::pair<job_id, reason>::first);
    const bool moves = d.what == kind::move;
    if (const auto asked = proposed_moves_.extract(job); asked && moves)
      reply_to_move(asked.mapped(), refused == s.refused.end() ? expected<planners::decision>{d}
                                                               : refuse(refused->second));
    // The rest are moves that were accepted, whose job has to stop before it can start
    // elsewhere, and starts that were refused.
    if (moves == (refused != s.refused.end())) continue;
    // A start that came too early waits for its GPUs. One that breaks a limit would be refused
    // again at once, and for ever.
    if (!moves && refused->second.code != reason::kind::insufficient &&
        refused->second.code != reason::kind::stale)
      continue;
    TROUPE_INVARIANT(d.with.empty(), "a start that waits for its GPUs is of one job");
    auto start = d;
    start.what = kind::start;
    pending_.add(std::move(start));
    if (const auto* j = book().job(job)) update_views(*j);
  }
  if (changed_ || starts_due_) wake();
}

void scheduler_state::withdraw(job_id job) {
  pending_.remove(job);
  if (const auto* j = book().job(job)) update_views(*j);
}

/// A reserved start waits for GPUs that are being released. If their node is lost, or its work goes
/// on, it would wait for ever and keep the others reserved.
void scheduler_state::withdraw_hopeless() {
  if (pending_.empty()) return;
  const auto& present = *state_->nodes_present;
  std::vector<std::uint32_t> freed(present.size());
  for (const auto id : stopping_) {
    TROUPE_INVARIANT(book().job(id), "a job that is stopping is known");
    for (const auto& share : book().job(id)->where) {
      TROUPE_INVARIANT(share.node < freed.size(),
                       "the GPUs that are released are on nodes of the cluster");
      if (present[share.node]) freed[share.node] += share.gpus;
    }
  }
  for (const auto id : pending_.hopeless(*state_->idle, freed)) withdraw(id);
}

/// Starts whose GPUs have become idle; false: there are none.
bool scheduler_state::start_pending() {
  if (pending_.empty()) return false;
  auto starts = pending_.possible(cluster(), *state_->idle);
  std::erase_if(starts, [&](const auto& d) {
    const auto* j = book().job(d.job);
    return !j || j->state != job_state::waiting;
  });
  if (starts.empty()) return false;
  propose(std::move(starts));
  return true;
}

// -- what others want to know

void scheduler_state::on(const watch_scheduling& m) {
  status_ = m.who;
  for (const auto& [id, p] : plans_) self_->send(status_, p);
  show_counts();
}

void scheduler_state::show_counts() {
  if (status_) self_->send(status_, scheduling_changed{starting_, counts_, kept_});
}

/// Asks the policy nothing while it would not be asked to place the job either.
policy_view scheduler_state::on(const why_waiting& m) {
  const auto* j = state_ ? book().job(m.job) : nullptr;
  if (!j) return {};
  const auto now = policy_snapshot();
  policy_view result{{}, std::make_shared<const planners::idle_index>(now.idle)};
  const auto* known = find_in(plans_, m.job);
  const bool planned = known && known->memory_factor == j->history.factor;
  if (j->state != job_state::waiting || j->suspended || starting_ || !planned) return result;
  result.why_waiting = faults_.sentence();
  if (result.why_waiting.empty())
    result.why_waiting = why_waiting_text(*options_.policy, now, m.job, known->plans.get());
  return result;
}

}  // namespace troupe::actors
