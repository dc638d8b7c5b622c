#pragma once

#include <caf/actor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "messages/domain/address.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/faults.hpp"
#include "runtime/journal/memory_journal.hpp"
#include "runtime/virtual/simulated_network.hpp"
#include "runtime/world/host.hpp"

namespace caf {
class actor_system;
class actor_system_config;
}  // namespace caf

namespace troupe::runtime {

struct virtual_options {
  std::uint64_t seed = 1;
  fault_plan faults = {};
  /// Maximum number of frames that a host has sent to the next hop and that are not handled yet; 0:
  /// unlimited. The default is the ZeroMQ transport's credit and queue.
  std::uint32_t credit_frames = 1024 + 16384;
  /// The outcome of the controller's next journal write; null: it succeeds. Called before the fault
  /// plan is.
  std::function<append_fate(double now_s)> on_append = {};
  /// Called for every host that dies, but not at the end of the world.
  std::function<void(address)> on_crash = {};
  /// Drops this frame on its way to the next host? Null: only the fault plan drops frames.
  std::function<bool(address from, address to, const frame&)> loses = {};
  /// Changes CAF's configuration.
  std::function<void(caf::actor_system_config&)> configure = {};
};

/// A whole cluster in one process, one thread and virtual time: hosts, network, disks and faults. A
/// run is a function of the cluster, the options and the caller's calls.
class virtual_world {
 public:
  /// Spawns a host's actors and makes `net->listen` deliver frames to one of them. Called at every
  /// start. All returned actors are killed when the host crashes.
  using start_function = std::function<std::vector<caf::actor>(const host&)>;

  explicit virtual_world(cluster c, virtual_options options = {});
  ~virtual_world();
  virtual_world(const virtual_world&) = delete;
  virtual_world& operator=(const virtual_world&) = delete;

  caf::actor_system& system();

  /// Adds a host, starts it, and schedules the fault plan's crashes of it. Each address once. If
  /// one of its actors fails, the host goes down and restarts after the fault plan's down time.
  void add_host(address a, start_function start);

  /// Kills the host's actors and removes their timers; frames in flight to them are lost, and so is
  /// everything that they still send or write. No effect on a host that is down or unknown.
  void crash(address a);
  /// The same, and the host starts again `down_s` later.
  void crash(address a, double down_s);

  /// Starts a crashed host as its next incarnation, with the same disk. No effect if it is up.
  void restart(address a);

  /// Sets how far a host's wall clock is ahead of virtual time (behind, if negative), also across
  /// restarts. No effect on an unknown host.
  void set_wall_clock(address a, double ahead_s);

  /// The host's disk, for damaging it while the host is down; null: it has none.
  std::shared_ptr<memory_disk> disk(address a) const;

  bool is_up(address a) const;
  std::uint64_t incarnation(address a) const;

  /// The present slowdown of work on this host, by the fault plan; 1: none.
  double slowdown(address a) const;
  /// Likewise for tensors between two datacenters.
  double link_slowdown(std::uint32_t a, std::uint32_t b) const;

  /// Calls `what` at a time, in order with all other events.
  void at(double time_s, std::function<void()> what);

  /// Runs everything up to and at `time_s`, which is the present then.
  void run_until(double time_s);

  /// Runs until `done()` holds, which is called after every event, or until `limit_s`. Returns
  /// done().
  template <class Predicate>
  requires std::is_invocable_r_v<bool, Predicate>
  bool run_until(Predicate done, double limit_s) {
    while (!done()) {
      if (!step(limit_s)) return done();
    }
    return true;
  }

  /// Runs one event and the handlers that it wakes. False: there is none up to `limit_s`, which is
  /// the present then (unless it is infinite).
  bool step(double limit_s);

  double now_s() const;

  /// A hash of every delivered frame (time, sender, receiver, bytes) and of the random generators'
  /// states. Equal for equal runs.
  std::uint64_t fingerprint() const;

  struct counters {
    network_counters network;
    std::uint64_t delivered = 0, dropped = 0;  // frames
    std::uint64_t events = 0;                  // timers, deliveries, callbacks
    std::uint64_t handlers = 0;                // messages handled by actors, and actor starts
    std::uint64_t crashes = 0, torn_appends = 0;
    std::uint64_t failures = 0;  // hosts that went down because an actor failed
  };
  counters count() const;

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace troupe::runtime
