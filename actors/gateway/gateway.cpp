#include "actors/gateway/gateway.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "actors/protocol/follow_cluster.hpp"
#include "actors/protocol/messenger.hpp"
#include "messages/base/invariant.hpp"
#include "runtime/host/log.hpp"

namespace troupe::actors {

void gateway_state::start(gateway_actor::pointer self, runtime::host h, shared_cluster c,
                          wan_options wan, std::function<void()> on_removed) {
  self_ = self;
  host_ = std::move(h);
  on_removed_ = std::move(on_removed);
  cluster_ = std::move(c);
  guard_ = frame_guard{host_, cluster_};
  router_ = tensor_router{host_, cluster_, std::move(wan)};
  prefills_ = prefill_controller{cluster_, datacenter_of(host_.self), host_.incarnation};
  on(tick{});
}

/// Frames that pass through are not decoded: the envelope decides the route, and a tensor's body is
/// never touched. The router returns the credit of those that it takes.
void gateway_state::on(const arrived& a) {
  const auto& f = a.what;
  const auto envelope = peek(f.header.bytes());
  if (!envelope || !guard_.admits(*envelope)) return host_.net->handled(f);
  if (envelope->to == host_.self && envelope->type != type_id<stripe>) {
    if (const auto decoded = decode(f.header.bytes()))
      on_message(envelope->from, decoded->second, f.body);
    return host_.net->handled(f);
  }
  router_.on_frame(*envelope, f);
  set_timer();
}

/// CAF cannot cancel a delayed message, so a timer that an earlier one has replaced still fires:
/// its number tells.
void gateway_state::on(const crossing_due& m) {
  if (m.number != timer_number_) return;
  timer_at_ = never_ns;
  router_.on_event_due();
  set_timer();
}

/// A later event needs no new timer: when the present one fires, the next is set from the router.
void gateway_state::set_timer() {
  const auto at = router_.next_event_at();
  if (at >= timer_at_) return;
  timer_at_ = at;
  const auto now = std::llround(host_.clock->now_s() * 1e9);
  send_later(self_, std::chrono::nanoseconds{std::max<time_ns>(at - now, 0)},
             crossing_due{++timer_number_});
}

bool gateway_state::is_local(node_index n) const {
  return n < cluster_->nodes.size() && gateway_address(cluster_->nodes[n].datacenter) == host_.self;
}

void gateway_state::on_message(address from, const message& m, const payload& body) {
  // The frame_guard has checked the sender's role; whether the node is of this datacenter is
  // checked by each handler.
  if (const auto* heartbeat = std::get_if<node_heartbeat>(&m))
    on_node_heartbeat(from, *heartbeat);
  else if (const auto* renewals = std::get_if<lease_renewals>(&m))
    on_lease_renewals(*renewals);
  else if (const auto* changed = std::get_if<cluster_update>(&m))
    on_cluster_update(*changed);
  else
    send_all(prefills_.on_message(from, m, body, host_.clock->now_s()));
  log_rejections();
}

/// A decoder that sends nonsense does so for every prompt: one line a minute for each sender.
void gateway_state::log_rejections() {
  for (const auto& r : prefills_.take_rejections()) {
    const auto lines = rejections_.pass(std::to_string(r.from), host_.clock->now_s());
    if (lines > 0)
      runtime::log(runtime::log_level::warn, host_name(*cluster_, host_.self),
                   "ignored a message about prefills", {{"why", r.why}, {"messages", lines}});
  }
}

/// Sends the prefill controller's messages, and sets the timer for its next event.
void gateway_state::send_all(const prefill_controller::outbox& out) {
  for (const auto& o : out) send_message(host_, o.to, o.what, o.body);
  const double at_s = prefills_.next_s();
  if (at_s >= prefills_at_s_) return;
  prefills_at_s_ = at_s;
  send_later(self_, std::max(0.0, at_s - host_.clock->now_s()), prefills_due{++prefills_number_});
}

void gateway_state::on(const prefills_due& m) {
  if (m.number != prefills_number_) return;
  prefills_at_s_ = never;
  send_all(prefills_.on_time(host_.clock->now_s() + timer_rounding_s));
}

void gateway_state::on_node_heartbeat(address from, const node_heartbeat& h) {
  // Heartbeats that arrive within this fraction of a heartbeat are reported together.
  constexpr double batching = 0.1;
  // A node speaks for itself: a forged heartbeat would keep a dead node's leases alive.
  if (!is_local(h.node) || from != node_address(h.node)) return;
  if (heartbeats_.empty())
    send_later(self_, batching * cluster_->settings.heartbeat_s, heartbeats_due{});
  // Only the newest counts, since sequence numbers grow; an older one would be refused anyway.
  heartbeats_[h.node] = h;
  needed_s_ = host_.clock->now_s();
}

/// A renewal is small and is lost without harm: the next heartbeat gets another.
void gateway_state::on_lease_renewals(const lease_renewals& all) {
  for (const auto& r : all.renewals)
    if (is_local(r.node)) send_message(host_, node_address(r.node), r);
}

void gateway_state::on_cluster_update(const cluster_update& u) {
  // The report names the version, by which the controller knows that this gateway follows it.
  if (!follow_cluster(cluster_, u.cluster, host_.self)) return;
  router_.follow_cluster();
  report();
}

/// The heartbeats are moved out: those that arrive while the report is under way belong to the
/// next.
gateway_report gateway_state::take_report() {
  std::vector<node_heartbeat> heartbeats;
  for (const auto& [n, heartbeat] : std::exchange(heartbeats_, {})) heartbeats.push_back(heartbeat);
  const auto version = cluster_->version;
  return {host_.incarnation, ++reports_, std::move(heartbeats),
          router_.traffic() == gateway_traffic{} ? std::nullopt : std::optional{router_.traffic()},
          version > 0 ? std::optional{version} : std::nullopt};
}

void gateway_state::report() {
  send_message(host_, controller_address, take_report());
}

void gateway_state::on(const heartbeats_due&) {
  if (!heartbeats_.empty()) report();
}

bool gateway_state::is_removed() const {
  TROUPE_INVARIANT(datacenter_of(host_.self) < cluster_->datacenters.size(),
                   "a gateway's datacenter is one of the cluster");
  return cluster_->datacenters[datacenter_of(host_.self)].removed;
}

void gateway_state::on(const tick&) {
  const auto now_s = host_.clock->now_s();
  // A removed gateway stays until its nodes have been silent for a lease: their programs have their
  // grace, and their last reports pass here.
  if (!is_removed()) needed_s_ = now_s;
  if (on_removed_ && now_s - needed_s_ >= cluster_->settings.lease_s) on_removed_();
  report();
  router_.on_tick();
  set_timer();
  send_later(self_, cluster_->settings.heartbeat_s, tick{});
}

}  // namespace troupe::actors
