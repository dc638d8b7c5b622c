#pragma once

#include <utility>

#include "actors/protocol.hpp"
#include "messages/codec.hpp"
#include "runtime/host.hpp"

namespace troupe::actors {

/// How the actors of a node's training send: to another host over the network, to their own through
/// the node, in the same form.
class courier {
 public:
  courier() = default;
  courier(runtime::host h, node_actor node)
      : host_{std::move(h)},
        node_{std::move(node)},
        wall_ahead_s_{host_.clock->wall_s() - host_.clock->now_s()} {}

  void send(address to, const message& m, payload body = {}) const {
    auto f = encode(host_.self, to, m, std::move(body));
    if (to == host_.self)
      caf::anon_send(node_, passed{std::move(f)});
    else
      host_.net->send(to, std::move(f), runtime::lane_of(m));
  }

  const node_actor& node() const { return node_; }
  address self() const { return host_.self; }
  double now_s() const { return host_.clock->now_s(); }
  /// A moment of now_s() as others may compare it with their own: by the wall clock as it stood
  /// when this was made, so that durations stay those of now_s().
  double on_wall(double at_s) const { return at_s + wall_ahead_s_; }

 private:
  runtime::host host_;
  node_actor node_;
  double wall_ahead_s_ = 0;
};

}  // namespace troupe::actors
