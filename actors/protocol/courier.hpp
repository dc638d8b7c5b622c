#pragma once

#include <utility>

#include "actors/protocol/protocol.hpp"
#include "messages/codec.hpp"
#include "runtime/host/host.hpp"

namespace troupe::actors {

/// Send helper for the actors of a node's training: to other hosts over the network, to their own
/// host through the node actor, in the same form.
class courier {
 public:
  courier() = default;
  courier(runtime::host h, node_actor node) : host_{std::move(h)}, node_{std::move(node)} {}

  /// False: the network takes no more just now, and the message is lost.
  bool send(address to, const message& m, payload body = {}) const {
    auto f = encode(host_.self, to, m, std::move(body));
    if (to != host_.self) return host_.net->send(to, std::move(f), runtime::lane_of(m));
    caf::anon_send(node_, passed{std::move(f)});
    return true;
  }

  const node_actor& node() const { return node_; }
  address self() const { return host_.self; }
  double now_s() const { return host_.clock->now_s(); }
  double wall_s() const { return host_.clock->wall_s(); }

 private:
  runtime::host host_;
  node_actor node_;
};

}  // namespace troupe::actors
