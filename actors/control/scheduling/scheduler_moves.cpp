#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "actors/control/scheduling/job_views.hpp"
#include "actors/control/scheduling/scheduler.hpp"
#include "actors/protocol/messenger.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "planners/policy/move.hpp"
#include "planners/policy/with_trainings.hpp"

// The scheduler's part about moves that users request.

namespace troupe::actors {

/// Clients repeat requests until they are answered: one that was answered gets the same answer, one
/// that is under way waits for its own.
void scheduler_state::on(const move_request& w) {
  if (const auto done = std::ranges::find(move_replies_, w.move.request, &move_reply::request);
      done != move_replies_.end()) {
    send_message(host_, w.from, *done);
    return;
  }
  const auto same = [&](const move_request& other) { return other.move.request == w.move.request; };
  if (std::ranges::any_of(move_requests_, same)) return;
  if (const auto* proposed = find_in(proposed_moves_, w.move.job); proposed && same(*proposed))
    return;
  move_requests_.push_back(w);
  something_changed();
}

namespace {

double price_of_move(const cluster& c, const planners::job_view& job,
                     const planners::decision& to) {
  return planners::price_of(
      c, planners::traffic_of_move(c, *job.spec, {job.how, job.where}, {to.how, to.where}));
}

}  // namespace

/// Not journaled: a repetition after a restart of the controller moves the job again, which is
/// harmless.
void scheduler_state::reply_to_move(const move_request& w, expected<planners::decision> made) {
  constexpr std::size_t kept = 64;
  move_reply result{w.move.request, made.has_value(), {}, {}, {}};
  if (made) {
    result.how = made->how, result.where = made->where;
    const auto* moved = find_in(running_, w.move.job);
    const double price = moved && moved->training ? price_of_move(cluster(), *moved, *made) : 0;
    if (price > 0) result.traffic = price;
  } else {
    result.why = made.error();
  }
  move_replies_.push_back(result);
  if (move_replies_.size() > kept) move_replies_.pop_front();
  send_message(host_, w.from, result);
}

/// Proposes the requested moves; false: there is none to propose.
bool scheduler_state::make_moves() {
  if (move_requests_.empty()) return false;
  std::vector<planners::decision> moves;
  auto rest = pending_.rest(*state_->idle, not_kept_);
  for (auto& w : std::exchange(move_requests_, {})) {
    const auto& m = w.move;
    const auto* running = find_in(running_, m.job);
    const bool elastic = running && facts_of(*running->spec).elastic;
    if (!running || !(running->training || elastic) || proposed_moves_.contains(m.job)) {
      reply_to_move(w, refuse(why_immovable(book(), m.job)));
      continue;
    }
    const planners::move_wish wish{m.stages,   m.data_parallel, m.tensor_parallel,
                                   m.gpu_type, m.nodes,         m.gpus.value_or(0)};
    const auto room = planners::needs_torch(*running->spec)
                          ? planners::idle_with_torch(*state_->without_torch, rest)
                          : rest;
    auto to = elastic ? planners::plan_program_move(cluster(), room, *running, wish)
                      : planners::plan_move(cluster(), room, *running, wish);
    if (!to) {
      reply_to_move(w, refuse(to.error()));
      continue;
    }
    // Two moves in one proposal must not get the same GPUs.
    for (const auto& share : to->where)
      rest.set_idle(share.node,
                    rest.idle(share.node) - std::min(rest.idle(share.node), share.gpus));
    moves.push_back({planners::decision::kind::move,
                     m.job,
                     std::move(to->how),
                     std::move(to->where),
                     {reason::kind::refused, fmt::format("moved here by {}", w.by)},
                     m.grace_s});
    proposed_moves_.emplace(m.job, std::move(w));
  }
  const bool any = !moves.empty();
  propose(std::move(moves));
  return any;
}

}  // namespace troupe::actors
