#include "actors/gateway.hpp"

#include <algorithm>
#include <cmath>

#include "actors/last_words.hpp"
#include "actors/post.hpp"
#include "actors/timing.hpp"

namespace troupe::actors {

void gateway_state::start(gateway_actor::pointer self, runtime::host h,
                          std::shared_ptr<const troupe::cluster> c, bool virtual_time,
                          link_slowdown slow_links) {
  self_ = self;
  host_ = std::move(h);
  cluster_ = std::move(c);
  guard_ = door_guard{host_, cluster_};
  heard_s_.assign(cluster_->nodes.size(), -1);
  gate_ = tensor_gate{host_, cluster_, virtual_time, std::move(slow_links)};
  tell();
}

void gateway_state::pass_on(const frame& f) {
  const auto envelope = peek(f.header.bytes());
  if (!envelope || !guard_.admits(*envelope)) return host_.net->handled(f);
  if (is_node(*cluster_, envelope->from))
    heard_s_[node_of(*cluster_, envelope->from)] = host_.clock->now_s();
  if (envelope->to == host_.self && envelope->type != type_id<stripe>) return host_.net->handled(f);
  gate_.arrived(*envelope, f);
  arm();
}

void gateway_state::look(std::uint64_t number) {
  if (number != armed_) return;
  armed_at_ = never;
  gate_.look();
  arm();
}

void gateway_state::arm() {
  const auto at = gate_.next();
  if (at >= armed_at_) return;
  armed_at_ = at;
  const auto now = std::llround(host_.clock->now_s() * 1e9);
  self_->delayed_send(gateway_actor{self_},
                      std::chrono::nanoseconds{std::max<time_ns>(at - now, 0)},
                      crossing_due{++armed_});
}

void gateway_state::tell() {
  membership m{host_.incarnation, ++statements_, {}};
  const double since = host_.clock->now_s() - cluster_->settings.lease_s;
  for (node_index n = 0; n < heard_s_.size(); ++n)
    if (gateway_address(cluster_->nodes[n].datacenter) == host_.self && heard_s_[n] >= 0 &&
        heard_s_[n] >= since)
      m.present.push_back(n);
  post(host_, controller_address, m);
  gate_.tidy();
  arm();
  self_->delayed_send(gateway_actor{self_}, nanoseconds_of(cluster_->settings.heartbeat_s), tick{});
}

gateway_actor::behavior_type gateway(gateway_actor::stateful_pointer<gateway_state> self,
                                     runtime::host h, std::shared_ptr<const troupe::cluster> c,
                                     bool virtual_time, link_slowdown slow_links) {
  auto& s = self->state;
  begin_actor(self, "gateway", [&] {
    s.start(self, std::move(h), std::move(c), virtual_time, std::move(slow_links));
  });
  return {
      [&s](const arrived& a) { s.pass_on(a.what); },
      [&s](const crossing_due& d) { s.look(d.number); },
      [&s](const tick&) { s.tell(); },
  };
}

}  // namespace troupe::actors
