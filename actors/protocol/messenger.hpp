#pragma once

#include <utility>

#include "actors/protocol/node_interface.hpp"
#include "messages/codec/codec.hpp"
#include "runtime/world/host.hpp"

namespace troupe::actors {

/// Encodes and sends a message to another host. False: the network accepts no more at the moment
/// and the message is lost, as on any network; senders that need delivery repeat it.
inline bool send_message(const runtime::host& h, address to, const message& m, payload body = {}) {
  return h.net->send(to, encode(h.net->self(), to, m, std::move(body)), runtime::lane_of(m));
}

/// The way of a node's trainers, stages and decoders to other hosts: they send messages to those,
/// and through the node actor to their own, in the same form.
class messenger {
 public:
  messenger() = default;
  messenger(runtime::host h, node_actor node) : host_{std::move(h)}, node_{std::move(node)} {}

  /// As send_message; a message to this host is never lost.
  bool send(address to, const message& m, payload body = {}) const {
    if (to != host_.self) return send_message(host_, to, m, std::move(body));
    caf::anon_send(node_, local_frame{encode(host_.self, to, m, std::move(body))});
    return true;
  }

  /// A tensor to a stage of another host once more, and not over the direct connection between the
  /// two nodes, which may have lost it.
  bool resend(address to, const tensor& t, payload body) const {
    return host_.net->send(to, encode(host_.self, to, t, std::move(body)),
                           runtime::relayed_tensor_lane);
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
