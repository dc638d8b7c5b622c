#pragma once

#include <caf/all.hpp>

#include <map>
#include <string>

#include "actors/host_fixture.hpp"
#include "actors/protocol/actor_state.hpp"
#include "actors/protocol/messenger.hpp"
#include "runtime/virtual/virtual_world.hpp"

// Actors under test, in virtual time.

namespace troupe::actors::tests {

/// Hosts in virtual time, some of which the test plays.
class virtual_fixture : public recording_peers {
 public:
  explicit virtual_fixture(const cluster& c, runtime::virtual_options o = {})
      : world{c, std::move(o)} {}

  /// Adds a host that the test plays; messages to it are recorded when they arrive.
  void play(address a);
  /// From a host that the test plays.
  bool send(address from, address to, const message& m, payload body = {});

  void advance(double seconds) { world.run_until(now_s() + seconds); }
  double now_s() const { return world.now_s(); }

  std::map<address, std::shared_ptr<runtime::transport>> nets;  // of hosts that the test plays
  runtime::virtual_world world;
};

/// The messages to a node about its own actors, in their order.
struct recorded_updates {
  std::vector<training_over> training_ends;
  std::vector<serving_over> serving_ends;
  std::vector<std::string> events;
};

/// A host with an actor under test. The test plays its node and all other hosts, and other actors
/// of its own host are peers, too. The records outlive the world, whose actors send to the end.
class actor_fixture : public recorded_updates, public virtual_fixture {
 public:
  explicit actor_fixture(const cluster& c = *harness::small_cluster(),
                         runtime::virtual_options o = {})
      : virtual_fixture{c, std::move(o)} {}

  /// Gives the actor a message from another host.
  template <class T>
  void receive(address from, const T& m, payload body = {}) {
    post(inbound<T>{from, m, std::move(body), {}});
  }
  /// Gives the actor a message of its own host.
  template <class T>
  void post(T m) {
    give(std::move(m));
    settle();
  }
  /// The same from an event of the world.
  template <class T>
  void give(T m) {
    caf::anon_send(actor_, std::move(m));
  }
  /// Lets messages inside of the host arrive.
  void settle() { advance(0.001); }

  runtime::host host;
  std::shared_ptr<recording_transport> net;

 protected:
  /// Starts the host at `self`, whose actor `spawn` makes.
  void start(address self, const std::function<caf::actor(const messenger&)>& spawn);
  /// The same for an actor of this state, with these options.
  template <class State, class Options>
  void start(address self, Options o) {
    start(self, [this, o = std::move(o)](const messenger& m) mutable {
      o.messenger = m;
      return caf::actor_cast<caf::actor>(spawn_actor<State>(world.system(), std::move(o)));
    });
  }

  /// Records the messages to the node.
  node_actor::behavior_type behavior();

 private:
  caf::actor actor_;
};

}  // namespace troupe::actors::tests
