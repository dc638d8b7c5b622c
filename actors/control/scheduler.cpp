#include "actors/control/scheduler.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "actors/control/estimator.hpp"
#include "actors/protocol/actor_failure.hpp"
#include "actors/protocol/post.hpp"
#include "actors/protocol/timing.hpp"
#include "planners/core/move.hpp"
#include "planners/pipeline/placement.hpp"
#include "runtime/host/stopwatch.hpp"

namespace troupe::actors {

void scheduler_state::start(scheduler_actor::pointer self, runtime::host h,
                            scheduler_options options, orchestrator_actor orchestrator,
                            estimator_actor estimator) {
  self_ = self;
  host_ = std::move(h);
  options_ = std::move(options);
  orchestrator_ = std::move(orchestrator);
  estimator_ = std::move(estimator);
  ledger_.emplace(*options_.cluster);
  idle_.emplace(*options_.cluster);
  present_.assign(options_.cluster->nodes.size(), false);
  for (node_index n = 0; n < present_.size(); ++n) idle_->set_idle(n, 0);
  self_->send(orchestrator_, watch{scheduler_actor{self_}});
  const auto& how = options_.cluster->settings;
  self_->delayed_send(scheduler_actor{self_},
                      nanoseconds_of(std::min(3 * how.heartbeat_s, how.lease_s)), startup_over{});
  if (options_.policy->round_s() > 0) self_->send(scheduler_actor{self_}, tick{});
}

// -- the job table
// -------------------------------------------------------------------------------------

void scheduler_state::learn(const journal_entry& e) {
  job_id job = 0;
  std::vector<node_index> nodes;
  if (const auto* ended = std::get_if<part_ended>(&e)) {
    const auto& g = ledger_->lease(ended->lease)->granted;  // the ledger may let go of it below
    job = g.job;
    nodes.push_back(g.parts[ended->part].node);
  }
  if (auto ok = ledger_->apply(e); !ok)
    throw std::runtime_error("the orchestrator contradicts itself: " + ok.error().text);
  reply_stale_ = true;
  if (const auto* accepted = std::get_if<job_accepted>(&e)) {
    if (knows_ledger_) want_plans(*ledger_->job(accepted->job));
  } else if (const auto* granted = std::get_if<lease_granted>(&e)) {
    job = granted->job;
    for (const auto& part : granted->parts) nodes.push_back(part.node);
  } else if (const auto* revoked = std::get_if<lease_revoked>(&e)) {
    job = ledger_->lease(revoked->lease)->granted.job;
  } else if (const auto* held = std::get_if<job_suspended>(&e)) {
    job = held->job;
  } else if (const auto* over = std::get_if<job_ended>(&e)) {
    job = over->job;
    wanted_.erase(job);
    notes_.erase(job);
  } else if (const auto* old = std::get_if<jobs_forgotten>(&e)) {
    for (const auto id : old->jobs) plans_.erase(id);
  }
  if (!knows_ledger_) return;
  for (auto n : nodes) refresh_idle(n);
  if (const auto* j = ledger_->job(job)) place(*j);
}

void scheduler_state::learn(const ledger_state& s) {
  *ledger_ = *s.book;
  knows_ledger_ = true;
  for (node_index n = 0; n < present_.size(); ++n) refresh_idle(n);
  for (const auto& [id, j] : ledger_->jobs())
    if (!is_final(j.state)) place(j);  // of those that have ended no plan is made again
  for (const auto& answer_now : std::exchange(unanswered_, {})) answer_now();
  begin_placing();
}

void scheduler_state::learn(const plans_made& p) {
  reply_stale_ = true;
  const auto* j = ledger_->job(p.job);
  if (!j || is_final(j->state) || p.memory_factor != j->memory_factor) return;
  plans_[p.job] = p;
  wanted_.erase(p.job);
  place(*j);
}

void scheduler_state::want_plans(const job_record& j) {
  if (auto it = wanted_.find(j.id); it != wanted_.end() && it->second == j.memory_factor) return;
  wanted_[j.id] = j.memory_factor;
  self_->send(estimator_, plans_wanted{j.id, j.spec, j.memory_factor, scheduler_actor{self_}});
}

planners::job_view scheduler_state::view_of(const job_record& j) const {
  planners::job_view v;
  v.id = j.id;
  v.spec = j.spec;
  v.submitted_s = j.submitted_s;
  if (auto it = plans_.find(j.id); it != plans_.end()) {
    v.plans = it->second.plans;
    v.why = it->second.why;
  }
  v.training = planners::runs_as_pipelines(*j.spec, v.plans.get());
  v.iterations_done = j.iterations_done;
  v.attempts = j.attempts;
  v.out_of_memory = j.out_of_memory;
  v.bytes_floor = j.bytes_floor;
  v.rows = j.attempts > 0 ? j.how.rows : 0;
  if (const auto* l = ledger_->lease(j.lease)) {
    v.started_s = l->granted.at_s;
    v.how = j.how;
    v.where = j.where;
    v.iteration_s = l->granted.iteration_s;
  }
  return v;
}

/// Puts a job where its state says: among those that wait, those that run, or neither.
void scheduler_state::place(const job_record& j) {
  // Before its plans are made, no policy sees it.
  const auto plans = plans_.find(j.id);
  const bool known = plans != plans_.end() && plans->second.memory_factor == j.memory_factor;
  if (!known && !is_final(j.state)) want_plans(j);
  if (j.state == job_state::running || is_final(j.state) || j.suspended) pending_.remove(j.id);
  const auto* next = pending_.find(j.id);
  const auto keep = [&](planners::job_views& views, job_state s) {
    if (known && !next && j.state == s && !(s == job_state::waiting && j.suspended))
      views.insert_or_assign(j.id, view_of(j));
    else
      views.erase(j.id);
  };
  keep(waiting_, job_state::waiting);
  keep(running_, job_state::running);
  moving_.erase(j.id);
  if (next) {
    auto& v = moving_.emplace(j.id, view_of(j)).first->second;
    v.how = next->how;
    v.where = next->where;
  }
  if (j.state == job_state::stopping)
    stopping_.insert(j.id);
  else
    stopping_.erase(j.id);
  if (j.state != job_state::running) something_changed();
}

void scheduler_state::learn(const presence& p) {
  reply_stale_ = true;
  if (is_gateway(*options_.cluster, p.who)) {
    if (p.present)
      gateways_present_.insert(p.who);
    else
      gateways_present_.erase(p.who);
    return;
  }
  const auto n = node_of(*options_.cluster, p.who);
  present_[n] = p.present;
  refresh_idle(n);
  if (std::ranges::find(present_, false) == present_.end()) end_startup();
  something_changed();
}

void scheduler_state::refresh_idle(node_index n) {
  idle_->set_idle(n, present_[n] ? ledger_->idle(n) : 0);
}

// -- deciding
// ------------------------------------------------------------------------------------------

planners::snapshot scheduler_state::look() {
  // By the wall clock, as the times of the journal that it is compared with.
  return {host_.clock->wall_s(),
          *options_.cluster,
          pending_.rest(*idle_, not_kept_),
          waiting_,
          running_,
          moving_};
}

void scheduler_state::something_changed() {
  changed_ = true;
  if (in_flight_ || asked_) return;
  asked_ = true;
  self_->send(scheduler_actor{self_}, decide_now{});
}

void scheduler_state::end_startup() {
  if (!std::exchange(starting_, false)) return;
  reply_stale_ = true;
  begin_placing();
}

void scheduler_state::begin_placing() {
  if (!placing()) return;
  if (std::exchange(round_skipped_, false)) begin_round();
  something_changed();
}

void scheduler_state::decide() {
  asked_ = false;
  if (in_flight_ || !placing() || !std::exchange(changed_, false)) return;
  withdraw_hopeless();
  if (start_pending() || make_moves()) return something_changed();  // and then once more
  if (options_.policy->round_s() == 0) begin_round();
}

void scheduler_state::begin_round() {
  if (!placing()) {
    round_skipped_ = true;
    return;
  }
  const auto s = look();
  const bool nobody = s.waiting.empty() && s.running.empty();
  if (in_flight_ || nobody) return;
  const runtime::stopwatch watch;
  auto decisions = options_.policy->decide(s, host_.random);
  if (options_.on_decision) options_.on_decision(watch.us(), decisions.size());
  propose(std::move(decisions));
}

void scheduler_state::propose(std::vector<planners::decision> decisions) {
  if (decisions.empty()) return;
  proposal p;
  p.number = ++proposals_;
  placement_note now{{}, present_};
  for (node_index n = 0; n < present_.size(); ++n) now.idle.push_back(idle_->idle(n));
  for (const auto& d : decisions) {
    const auto* j = ledger_->job(d.job);
    p.expected.push_back(j ? expected_of(*options_.cluster, *j->spec, d) : proposal::expectation{});
    if (pending_.find(d.job)) withdraw(d.job);  // whatever was decided before
    if (d.what != planners::decision::kind::start && d.what != planners::decision::kind::move)
      continue;
    proposed_[d.job] = d;
    notes_[d.job] = now;
    for (const auto& share : d.where)
      now.idle[share.node] -= std::min(now.idle[share.node], share.gpus);
  }
  p.decisions = std::move(decisions);
  in_flight_ = true;
  self_->send(orchestrator_, std::move(p));
}

void scheduler_state::learn(const settled& s) {
  in_flight_ = false;
  using kind = planners::decision::kind;
  for (auto& [job, d] : std::exchange(proposed_, {})) {
    const auto refused = std::ranges::find(s.refused, job, &std::pair<job_id, reason>::first);
    const bool moves = d.what == kind::move;
    if (const auto asked = answering_.extract(job); asked && moves)
      reply_to_move(asked.mapped(), refused == s.refused.end()
                                        ? expected<planners::decision>{d}
                                        : tl::unexpected<reason>(refused->second));
    // A move's start is next; a start that was refused may only have come too soon.
    if (moves == (refused != s.refused.end())) continue;
    auto start = d;
    start.what = kind::start;
    pending_.add(std::move(start));
    if (const auto* j = ledger_->job(job)) place(*j);
  }
  if (changed_) something_changed();
}

void scheduler_state::withdraw(job_id job) {
  pending_.remove(job);
  if (const auto* j = ledger_->job(job)) place(*j);
}

void scheduler_state::withdraw_hopeless() {
  if (pending_.empty()) return;
  std::vector<std::uint32_t> freed(present_.size());
  for (const auto id : stopping_)
    for (const auto& share : ledger_->job(id)->where)
      if (present_[share.node]) freed[share.node] += share.gpus;
  for (const auto id : pending_.hopeless(*idle_, freed)) withdraw(id);
}

/// Those whose GPUs have become idle; false: none.
bool scheduler_state::start_pending() {
  if (pending_.empty()) return false;
  auto starts = pending_.possible(*options_.cluster, *idle_);
  std::erase_if(starts, [&](const auto& d) {
    const auto* j = ledger_->job(d.job);
    return !j || j->state != job_state::waiting;
  });
  if (starts.empty()) return false;
  propose(std::move(starts));
  return true;
}

// -- moves that people ask for
// ----------------------------------------------------------------------------

void scheduler_state::take(const move_wanted& w) {
  if (const auto done = std::ranges::find(answered_, w.move.request, &move_reply::request);
      done != answered_.end())
    return post(host_, w.from, *done);
  const auto same = [&](const move_wanted& other) { return other.move.request == w.move.request; };
  if (std::ranges::any_of(wishes_, same)) return;
  if (const auto at = answering_.find(w.move.job); at != answering_.end() && same(at->second))
    return;
  wishes_.push_back(w);
  something_changed();
}

void scheduler_state::reply_to_move(const move_wanted& w, expected<planners::decision> made) {
  constexpr std::size_t kept = 64;
  move_reply said{w.move.request, made.has_value(), {}, {}, {}};
  if (made) {
    said.how = made->how;
    said.where = made->where;
  } else {
    said.why = made.error();
  }
  answered_.push_back(said);
  if (answered_.size() > kept) answered_.pop_front();
  post(host_, w.from, said);
}

reason scheduler_state::why_immovable(job_id job) const {
  const auto* j = ledger_->job(job);
  if (!j) return {reason::kind::unknown, fmt::format("there is no job {}", job)};
  if (is_final(j->state))
    return {reason::kind::invalid, fmt::format("job {} has {} already", job, to_string(j->state))};
  if (j->state == job_state::running && !planners::is_pipeline_job(*j->spec))
    return {reason::kind::invalid,
            fmt::format("job {} is no training: only those can be moved", job)};
  return {reason::kind::invalid,
          fmt::format("job {} does not run: it is {}", job, to_string(j->state))};
}

/// Proposes what was asked for; false: nothing can be done, or was asked for.
bool scheduler_state::make_moves() {
  std::vector<planners::decision> moves;
  auto rest = pending_.rest(*idle_, not_kept_);
  for (auto& w : std::exchange(wishes_, {})) {
    const auto& m = w.move;
    const auto running = running_.find(m.job);
    if (running == running_.end() || !running->second.training || answering_.contains(m.job)) {
      reply_to_move(w, tl::unexpected<reason>(why_immovable(m.job)));
      continue;
    }
    auto to =
        planners::plan_move(*options_.cluster, rest, running->second,
                            {m.stages, m.data_parallel, m.tensor_parallel, m.gpu_type, m.nodes});
    if (!to) {
      reply_to_move(w, tl::unexpected<reason>(to.error()));
      continue;
    }
    for (const auto& share : to->where)
      rest.set_idle(share.node,
                    rest.idle(share.node) - std::min(rest.idle(share.node), share.gpus));
    moves.push_back({planners::decision::kind::move,
                     m.job,
                     std::move(to->how),
                     std::move(to->where),
                     {},
                     m.grace_s});
    answering_.emplace(m.job, std::move(w));
  }
  const bool any = !moves.empty();
  propose(std::move(moves));
  return any;
}

scheduler_actor::behavior_type scheduler(scheduler_actor::stateful_pointer<scheduler_state> self,
                                         runtime::host h, scheduler_options options,
                                         orchestrator_actor orchestrator,
                                         estimator_actor estimator) {
  auto& s = self->state;
  begin_actor(self, "scheduler", [&] {
    s.start(self, std::move(h), std::move(options), std::move(orchestrator), std::move(estimator));
  });
  return {
      [&s](const ledger_event& m) { s.learn(*m.entry); },
      [&s](const ledger_state& m) { s.learn(m); },
      [&s](const presence& m) { s.learn(m); },
      [&s](const startup_over&) { s.end_startup(); },
      [&s](const plans_made& m) { s.learn(m); },
      [&s](const decide_now&) { s.decide(); },
      [&s](const settled& m) { s.learn(m); },
      [&s](const job_progress& m) { s.learn(m); },
      [&s](const move_wanted& m) { s.take(m); },
      [&s, self](const tick&) {
        s.begin_round();
        self->delayed_send(scheduler_actor{self}, nanoseconds_of(s.round_s()), tick{});
      },
      [&s](const inbound<query_jobs>& m) { s.answer(m.from, m.body); },
      [&s](const inbound<explain_job>& m) { s.answer(m.from, m.body); },
  };
}

}  // namespace troupe::actors
