#pragma once

#include <exception>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <caf/all.hpp>

#include "actors/protocol/actor_state.hpp"

// Actors that a node runs for one lease. What a job's files, programs and templates make them throw
// fails that lease, by the state's fail_work(why), and not the host.

namespace troupe::actors {

/// The error with which the actor ends: none, unless fail_work() throws too.
template <class State>
caf::error failure_of_lease(State& s, const std::exception_ptr& thrown) {
  auto failure = actor_failure(State::actor_name, thrown);
  try {
    const auto who = fmt::format("{}: ", State::actor_name);
    auto why = sentence_of(failure);
    if (why.starts_with(who)) why.erase(0, who.size());
    s.fail_work(fmt::format("the {} failed: {}", State::actor_name, why));
    return {};
  } catch (...) {
    return failure;
  }
}

template <class State, class... Args>
typename State::interface::behavior_type run_lease_actor(
    typename State::interface::template stateful_pointer<State> self, Args... args) {
  self->set_exception_handler([self](std::exception_ptr& thrown) -> caf::error {
    return failure_of_lease(self->state, thrown);
  });
  try {
    self->state.start(self, std::move(args)...);
  } catch (...) {
    self->quit(failure_of_lease(self->state, std::current_exception()));
  }
  return behavior_of(self->state, typename State::interface::signatures{});
}

/// Spawns an actor beside the node's.
template <class State, caf::spawn_options Options, class Spawner, class... Args>
typename State::interface spawn_lease_actor(Spawner& by, Args... args) {
  return by.template spawn<Options>(run_lease_actor<State, Args...>, std::move(args)...);
}

}  // namespace troupe::actors
