#include "actors/gateway.hpp"

#include "actors/post.hpp"
#include "actors/timing.hpp"

namespace troupe::actors {

void gateway_state::start(gateway_actor::pointer self, runtime::host h,
                          std::shared_ptr<const troupe::cluster> c) {
  self_ = self;
  host_ = std::move(h);
  cluster_ = std::move(c);
  heard_s_.assign(cluster_->nodes.size(), -1);
  tell();
}

void gateway_state::pass_on(const frame& f) {
  auto envelope = peek(f.header.bytes());
  if (!envelope) return;
  if (is_node(*cluster_, envelope->from))
    heard_s_[node_of(*cluster_, envelope->from)] = host_.clock->now_s();
  if (envelope->to != host_.self) host_.net->send(envelope->to, f);
}

void gateway_state::tell() {
  membership m{host_.incarnation, ++statements_, {}};
  const double since = host_.clock->now_s() - cluster_->settings.lease_s;
  for (node_index n = 0; n < heard_s_.size(); ++n)
    if (gateway_address(cluster_->nodes[n].datacenter) == host_.self && heard_s_[n] >= 0 &&
        heard_s_[n] >= since)
      m.present.push_back(n);
  post(host_, controller_address, m);
  self_->delayed_send(gateway_actor{self_}, nanoseconds_of(cluster_->settings.heartbeat_s), tick{});
}

gateway_actor::behavior_type gateway(gateway_actor::stateful_pointer<gateway_state> self,
                                     runtime::host h, std::shared_ptr<const troupe::cluster> c) {
  auto& s = self->state;
  auto net = h.net;
  s.start(self, std::move(h), std::move(c));
  return {
      [&s, net](const arrived& a) {
        s.pass_on(a.what);
        net->handled(a.what);
      },
      [&s](const tick&) { s.tell(); },
  };
}

}  // namespace troupe::actors
