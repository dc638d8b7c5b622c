#pragma once

#include <caf/actor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "messages/address.hpp"
#include "messages/cluster.hpp"
#include "messages/faults.hpp"
#include "runtime/host/host.hpp"
#include "runtime/journal/memory_journal.hpp"
#include "runtime/virtual/simulated_network.hpp"

namespace caf {
class actor_system;
class actor_system_config;
}  // namespace caf

namespace troupe::runtime {

struct virtual_options {
  std::uint64_t seed = 1;
  fault_plan faults = {};
  /// Frames that a host may have sent to the next one and that are not handled yet; 0: any number.
  /// The default is what the ZeroMQ transport lets be on the way and wait.
  std::uint32_t credit_frames = 1024 + 16384;
  /// What becomes of the controller's next write to its journal, now; null: it is kept. Asked
  /// before the fault plan is.
  std::function<append_fate(double now_s)> on_append = {};
  /// Told of every host that dies, as it does: not of the world's own end.
  std::function<void(address)> on_crash = {};
  /// Is this frame lost on its way to the next host? Null: only by the fault plan.
  std::function<bool(address from, address to, const frame&)> loses = {};
  /// For whoever needs more from CAF than its defaults.
  std::function<void(caf::actor_system_config&)> configure = {};
};

/// A whole cluster in one process, one thread and virtual time: hosts, the network between them,
/// their disks, and what goes wrong. A run is a function of the cluster, the options and what the
/// caller does.
class virtual_world {
 public:
  /// Spawns a host's actors and lets `net->listen` post frames to one of them. Called at every
  /// start. All returned actors are killed when the host crashes.
  using start_function = std::function<std::vector<caf::actor>(const host&)>;

  explicit virtual_world(cluster c, virtual_options options = {});
  ~virtual_world();
  virtual_world(const virtual_world&) = delete;
  virtual_world& operator=(const virtual_world&) = delete;

  caf::actor_system& system();

  /// Adds a host, starts it now, and lets the fault plan's crashes happen to it. Each address once.
  /// A host one of whose actors fails goes down, and starts again after the fault plan's time down.
  void add_host(address a, start_function start);

  /// Kills the host's actors and forgets their timers; frames on the way to them are lost, as is
  /// what they still try to send or write. Nothing happens to a host that is down or not known.
  void crash(address a);
  /// The same, and the host starts again `down_s` later.
  void crash(address a, double down_s);

  /// Starts a crashed host as its next incarnation, with the same disk. Nothing happens if it is
  /// up.
  void restart(address a);

  /// Sets the wall clock of a host so far ahead of virtual time (behind it, if negative). It stays
  /// so when the host starts again. Nothing happens to a host that is not known.
  void set_wall_clock(address a, double ahead_s);

  /// The host's disk, to be damaged while it is down; null: it has none.
  std::shared_ptr<memory_disk> disk(address a) const;

  bool is_up(address a) const;
  std::uint64_t incarnation(address a) const;

  /// How many times as long work on this host takes now, by the fault plan; 1 is normal.
  double slowdown(address a) const;
  /// Likewise for tensors between two datacenters.
  double link_slowdown(std::uint32_t a, std::uint32_t b) const;

  /// Calls `what` at a time, in one order with all else.
  void at(double time_s, std::function<void()> what);

  /// Everything up to and at `time_s`, which is then the present.
  void run_until(double time_s);

  /// Until `done()` holds, asked after every event, or `limit_s` has come. Gives done().
  template <class Predicate>
  requires std::is_invocable_r_v<bool, Predicate>
  bool run_until(Predicate done, double limit_s) {
    while (!done()) {
      if (!step(limit_s)) return done();
    }
    return true;
  }

  /// One event and what it leads to at once. False: none is due up to `limit_s`, which is now the
  /// present (unless it is for ever).
  bool step(double limit_s);

  double now_s() const;

  /// A hash of every delivered frame (when, between whom, its bytes) and of the random generators'
  /// states. Equal for equal runs.
  std::uint64_t fingerprint() const;

  struct counters {
    network_counters network;
    std::uint64_t delivered = 0, dropped = 0;  // frames
    std::uint64_t events = 0;                  // timers, deliveries, callbacks
    std::uint64_t handlers = 0;                // messages that actors handled, and their starts
    std::uint64_t crashes = 0, torn_appends = 0;
    std::uint64_t failures = 0;  // hosts that went down because one of their actors had failed
  };
  counters count() const;

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace troupe::runtime
