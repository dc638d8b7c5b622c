#pragma once

#include <functional>
#include <memory>
#include <type_traits>

#include <caf/all.hpp>

#include "messages/domain/address.hpp"
#include "messages/wire/frame.hpp"
#include "runtime/host/transport.hpp"

// Messages inside one host that several kinds of actors take. Each actor's own interface and its
// own messages are in its folder; CAF checks the interfaces when the senders are compiled.

namespace troupe::actors {

/// A message from another host. It holds one credit of its connection, which the sender gets back
/// when the handler is done, so that no mailbox grows without bound.
template <class T>
struct inbound {
  address from = 0;
  T body;
  payload raw;
  std::shared_ptr<const void> credit;
  runtime::caller sender = {};
};

/// A frame as the transport handed it over.
struct arrived {
  frame what;
};

/// The type of an actor that takes these messages and answers none.
template <class... Messages>
using actor_of = caf::typed_actor<caf::reacts_to<Messages>...>;

/// Receives the frames of a host's transport.
using frame_receiver = actor_of<arrived>;

/// Periodic tick (heartbeats, liveness, retries).
struct tick {};

/// A callback to run on the actor's own thread.
struct call_now {
  std::function<void()> what;
};

/// Does the actor's interface have this message from another host? Dispatchers ask it, so that an
/// interface is the only list of an actor's messages.
template <class Actor, class T>
inline constexpr bool takes_inbound =
    caf::detail::tl_contains<typename Actor::signatures, caf::reacts_to<inbound<T>>>::value;

/// Argument-dependent lookup finds it for the types of this namespace, and for no others.
template <class T>
void stays_in_process(const T&);

}  // namespace troupe::actors

// "Unsafe" in CAF's sense: messages of this namespace are never serialized, since they do not leave
// the process.
namespace caf {
template <class T>
requires requires(const T& m) {
  stays_in_process(m);
}
struct allowed_unsafe_message_type<T> : std::true_type {};
}  // namespace caf
