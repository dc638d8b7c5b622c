#pragma once

#include <chrono>
#include <concepts>
#include <utility>

#include <caf/all.hpp>

#include "actors/protocol/actor_failure.hpp"
#include "actors/protocol/protocol.hpp"
#include "actors/protocol/timing.hpp"

// Each actor is a class, its state: `interface` is the type of its handle, `actor_name` stands in
// the log, start() begins it, and on(message) handles each message of the interface. CAF destroys
// the state when the actor ends, also where handles of it are left.

namespace troupe::actors {

/// The handler of one message: the state's on(), or the call that the message carries.
template <class State, class Message>
auto handler_of(State& s) {
  return [&s](const Message& m) {
    if constexpr (std::same_as<Message, call_now>)
      m.what();
    else
      return s.on(m);
  };
}

template <class State, class... Messages, class... Answers>
typename State::interface::behavior_type behavior_of(
    State& s,
    caf::detail::type_list<caf::typed_mpi<caf::detail::type_list<Messages>, Answers>...>) {
  return {handler_of<State, Messages>(s)...};
}

/// The function of an actor, as CAF spawns it.
template <class State, class... Args>
typename State::interface::behavior_type run_actor(
    typename State::interface::template stateful_pointer<State> self, Args... args) {
  begin_actor(self, State::actor_name, [&] { self->state.start(self, std::move(args)...); });
  return behavior_of(self->state, typename State::interface::signatures{});
}

/// Spawns an actor of an actor system, or beside another actor; `args` are those of start().
template <class State, caf::spawn_options Options = caf::no_spawn_options, class Spawner,
          class... Args>
typename State::interface spawn_actor(Spawner& by, Args... args) {
  return by.template spawn<Options>(run_actor<State, Args...>, std::move(args)...);
}

/// An actor's message to itself, `after` from now.
template <class Self, class Message>
void send_later(Self* self, std::chrono::nanoseconds after, Message m) {
  self->delayed_send(typename Self::actor_hdl{self}, after, std::move(m));
}
template <class Self, class Message>
void send_later(Self* self, double after_s, Message m) {
  send_later(self, nanoseconds_of(after_s), std::move(m));
}

}  // namespace troupe::actors
