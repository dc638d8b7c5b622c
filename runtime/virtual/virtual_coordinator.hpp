#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "messages/base/time.hpp"
#include "runtime/virtual/event_queue.hpp"

namespace caf {
class actor;
class actor_system;
class actor_system_config;
}  // namespace caf

namespace troupe::runtime {

/// Seconds as nanoseconds, rounded; too large values are never_ns.
constexpr time_ns to_ns(double s) {
  const double ns = s * 1e9;
  if (ns >= 9.2e18) return never_ns;
  return static_cast<time_ns>(ns < 0 ? ns - 0.5 : ns + 0.5);
}
constexpr double to_s(time_ns t) {
  return static_cast<double>(t) * 1e-9;
}

/// Virtual time for an actor system, on the single thread that calls run. Actors are plain CAF:
/// their delayed sends, timeouts and clock() use virtual time.
///
/// Deterministic order: events happen by (time, order of scheduling); after each event, every actor
/// that it woke runs, one message at a time, first come first served, until none is ready; only
/// then does time advance to the next event. Actors must not block or detach.
class virtual_coordinator {
 public:
  /// Callback of a cheap event. `token` is the value that it was scheduled with.
  class listener {
   public:
    virtual void fire(std::uint64_t token) = 0;

   protected:
    ~listener() = default;
  };

  using event_id = runtime::event_id;

  /// Makes every actor system built with `cfg` run on virtual time. Destroying such a system does
  /// not wait for its actors: it kills those that are ready and drops scheduled events.
  static void install(caf::actor_system_config& cfg);

  /// The coordinator of such a system.
  static virtual_coordinator& of(caf::actor_system& system);

  virtual ~virtual_coordinator() = default;

  virtual time_ns now() const = 0;

  /// Schedules an event; a time in the past means now. The listener must outlive the event.
  virtual event_id at(time_ns t, listener& whom, std::uint64_t token) = 0;
  virtual event_id at(time_ns t, std::function<void()> what) = 0;

  /// False: it has already happened or was cancelled.
  virtual bool cancel(event_id e) = 0;

  /// Calls `what` as soon as the running handler or callback has returned.
  virtual void after_handler(std::function<void()> what) = 0;

  /// Removes every timeout and delayed message of these actors.
  virtual void drop_events_of(std::span<const caf::actor> actors) = 0;

  /// Runs every ready actor until none is ready.
  virtual void run_ready() = 0;

  /// Runs ready actors, then the next event if its time is at most `limit`, then ready actors
  /// again. False: there was no such event.
  virtual bool step(time_ns limit = never_ns) = 0;

  /// Runs all events up to and at `t`, and sets the time to `t`.
  virtual void run_until(time_ns t) = 0;

  /// Runs until there are no events.
  virtual void run() = 0;

  /// The number of events that happened, of handlers that ran (an actor's start counts as one), and
  /// of events that are scheduled.
  virtual std::uint64_t events() const = 0;
  virtual std::uint64_t resumes() const = 0;
  virtual std::size_t pending() const = 0;
};

}  // namespace troupe::runtime
