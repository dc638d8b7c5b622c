#include "actors/gateway/gateway.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "actors/protocol/actor_failure.hpp"
#include "actors/protocol/messenger.hpp"
#include "actors/protocol/timing.hpp"

namespace troupe::actors {

void gateway_state::start(gateway_actor::pointer self, runtime::host h,
                          std::shared_ptr<const troupe::cluster> c, bool virtual_time,
                          link_slowdown slow_links) {
  self_ = self;
  host_ = std::move(h);
  cluster_ = std::move(c);
  guard_ = frame_guard{host_, cluster_};
  gate_ = tensor_router{host_, cluster_, virtual_time, std::move(slow_links)};
  on_tick();
}

void gateway_state::pass_on(const frame& f) {
  const auto envelope = peek(f.header.bytes());
  if (!envelope || !guard_.admits(*envelope)) return host_.net->handled(f);
  if (envelope->to == host_.self && envelope->type != type_id<stripe>) {
    if (const auto decoded = decode(f.header.bytes())) take(envelope->from, decoded->second);
    return host_.net->handled(f);
  }
  gate_.arrived(*envelope, f);
  arm();
}

void gateway_state::look(std::uint64_t number) {
  if (number != armed_) return;
  armed_at_ = never_ns;
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

bool gateway_state::is_mine(node_index n) const {
  return n < cluster_->nodes.size() && gateway_address(cluster_->nodes[n].datacenter) == host_.self;
}

void gateway_state::take(address from, const message& m) {
  // Nodes' heartbeats come one by one; what comes within this part of a heartbeat goes on as one.
  constexpr double gather = 0.1;
  if (const auto* h = std::get_if<node_heartbeat>(&m)) {
    if (!is_mine(h->node) || from != node_address(*cluster_, h->node)) return;
    if (gathered_.empty())
      self_->delayed_send(gateway_actor{self_},
                          nanoseconds_of(gather * cluster_->settings.heartbeat_s),
                          heartbeats_due{});
    gathered_[h->node] = *h;
  } else if (const auto* all = std::get_if<lease_renewals>(&m)) {
    for (const auto& r : all->renewals)
      if (is_mine(r.node)) send_message(host_, node_address(*cluster_, r.node), r);
  }
}

void gateway_state::report() {
  gateway_report r{host_.incarnation, ++reports_, {}};
  if (gate_.traffic() != gateway_traffic{}) r.traffic = gate_.traffic();
  for (const auto& [n, heartbeat] : std::exchange(gathered_, {})) r.heartbeats.push_back(heartbeat);
  send_message(host_, controller_address, r);
}

void gateway_state::report_heartbeats() {
  if (!gathered_.empty()) report();
}

void gateway_state::on_tick() {
  report();
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
      [&s](const heartbeats_due&) { s.report_heartbeats(); },
      [&s](const tick&) { s.on_tick(); },
  };
}

}  // namespace troupe::actors
