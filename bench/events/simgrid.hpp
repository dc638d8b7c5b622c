#pragma once

#include <cstdint>

// The same work as events.cpp gives to this project's virtual time, done by SimGrid's s4u actors.
// Seconds of processor time from the start of the simulation to its end, without building the
// platform.

namespace troupe::bench {

/// `actors` actors that each sleep, `events` times in all: a millisecond, or random periods.
double simgrid_timers_s(std::uint32_t actors, std::uint64_t events, bool random);

/// The same by SimGrid's kernel timers, which call a function and wake no actor.
double simgrid_callbacks_s(std::uint32_t actors, std::uint64_t events, bool random);

/// `pairs` pairs of actors that send a pointer back and forth through mailboxes, `events` times in
/// all; on one host, or on two hosts that a link of 50 us joins. `constant`: by the network model
/// that gives every message the same time, as this project's does for small frames, and not by
/// the one in which all pairs share the link.
double simgrid_messages_s(std::uint32_t pairs, std::uint64_t events, bool two_hosts, bool constant);

}  // namespace troupe::bench
