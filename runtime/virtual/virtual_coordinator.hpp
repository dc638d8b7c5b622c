#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "messages/time.hpp"
#include "runtime/virtual/event_queue.hpp"

namespace caf {
class actor;
class actor_system;
class actor_system_config;
}  // namespace caf

namespace troupe::runtime {

/// Seconds as nanoseconds, rounded; what is too large to be told is never.
constexpr time_ns to_ns(double s) {
  const double ns = s * 1e9;
  if (ns >= 9.2e18) return never_ns;
  return static_cast<time_ns>(ns < 0 ? ns - 0.5 : ns + 0.5);
}
constexpr double to_s(time_ns t) {
  return static_cast<double>(t) * 1e-9;
}

/// Virtual time for an actor system, on the one thread that calls run. Actors are plain CAF: their
/// delayed sends, timeouts and clock() are this one's.
///
/// The order is a rule, not an accident: events happen by (time, order of scheduling); after each
/// one, every actor that it woke runs, one message at a time and first come first served, until
/// none is ready; only then is the next event taken, and time jumps to it. Actors must not block or
/// detach.
class virtual_coordinator {
 public:
  /// Whom a cheap event calls. `token` is what it was scheduled with.
  class listener {
   public:
    virtual void fire(std::uint64_t token) = 0;

   protected:
    ~listener() = default;
  };

  using event_id = runtime::event_id;

  /// Makes every actor system built with `cfg` run on virtual time. Such a system does not wait for
  /// its actors when it is destroyed: it kills those that are ready and drops what is scheduled.
  static void install(caf::actor_system_config& cfg);

  /// The coordinator of a system that was built so.
  static virtual_coordinator& of(caf::actor_system& system);

  virtual ~virtual_coordinator() = default;

  virtual time_ns now() const = 0;

  /// Schedules; a time that has passed means now. The listener must outlive the event.
  virtual event_id at(time_ns t, listener& whom, std::uint64_t token) = 0;
  virtual event_id at(time_ns t, std::function<void()> what) = 0;

  /// False: it has happened already, or was cancelled.
  virtual bool cancel(event_id e) = 0;

  /// Calls `what` as soon as the actor's handler or the callback that now runs has returned.
  virtual void after_handler(std::function<void()> what) = 0;

  /// Forgets every timeout and delayed message of these actors.
  virtual void drop_events_of(std::span<const caf::actor> actors) = 0;

  /// Runs every ready actor until none is ready.
  virtual void run_ready() = 0;

  /// Runs ready actors, then the next event if its time is at most `limit`, then ready actors
  /// again. False: there was no such event.
  virtual bool step(time_ns limit = never_ns) = 0;

  /// All events up to and at `t`; afterwards it is `t`.
  virtual void run_until(time_ns t) = 0;

  /// Until nothing is left to happen.
  virtual void run() = 0;

  /// How many events happened, how many handlers ran (an actor's start counts as one), and how many
  /// events are waiting.
  virtual std::uint64_t events() const = 0;
  virtual std::uint64_t resumes() const = 0;
  virtual std::size_t pending() const = 0;
};

}  // namespace troupe::runtime
