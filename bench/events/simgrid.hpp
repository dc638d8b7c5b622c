#pragma once

#include <cstdint>

// The same work as events.cpp gives to this project's virtual time, done by SimGrid's s4u actors.
// Seconds of processor time from the start of the simulation to its end, without building the
// platform.

namespace troupe::bench {

/// `actors` actors that each sleep a millisecond, `events` times in all.
double simgrid_timers_s(std::uint32_t actors, std::uint64_t events);

/// `pairs` pairs of actors that send a pointer back and forth through mailboxes, `events` times in
/// all; on one host, or on two hosts that a link of 50 us joins.
double simgrid_messages_s(std::uint32_t pairs, std::uint64_t events, bool two_hosts);

}  // namespace troupe::bench
