#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "actors/gateway/tensor_router.hpp"
#include "actors/protocol/actor_state.hpp"
#include "actors/protocol/permissions.hpp"
#include "actors/serving/prefill/prefill_controller.hpp"
#include "messages/base/time.hpp"
#include "runtime/host/log_limiter.hpp"
#include "runtime/host/shared_cluster.hpp"
#include "runtime/world/host.hpp"

namespace troupe::actors {

/// Timer of the WAN arbiter. Only the last one counts.
struct crossing_due {
  std::uint64_t number = 0;
};

/// Time to forward the batched heartbeats.
struct heartbeats_due {};

/// Timer of the prefill controller. Only the last one counts.
struct prefills_due {
  std::uint64_t number = 0;
};

using gateway_actor = actor_of<arrived, crossing_due, heartbeats_due, prefills_due, tick>;

/// The gateway actor: a datacenter's connection to the controller and to other datacenters.
///
/// - Frames for other hosts go to the tensor_router, which forwards them and schedules tensors on
///   the WAN. The frame_guard drops those that their sender's role may not send.
/// - Heartbeats of its nodes are collected for a tenth of a heartbeat and sent to the controller in
///   one gateway_report; the lease_renewals that answer it are distributed to the nodes.
/// - It reports every heartbeat, also without any from nodes, so that the controller knows that it
///   is up.
///
/// - It is the prefill_controller's host: hands it the gateway's own messages, and sends its own.
///
/// `on_removed` is called, if given, every heartbeat once its datacenter was removed from the
/// cluster and none of its nodes has reported for a lease's duration: their work has its grace.
///
/// It has no durable state: after a restart nodes and stages resend what was lost.
class gateway_state {
 public:
  using interface = gateway_actor;
  static constexpr const char* actor_name = "gateway";

  void start(gateway_actor::pointer self, runtime::host h, shared_cluster c, wan_options wan,
             std::function<void()> on_removed);
  void on(const arrived& a);
  void on(const crossing_due& m);
  void on(const heartbeats_due&);
  void on(const prefills_due& m);
  void on(const tick&);

 private:
  void set_timer();
  gateway_report take_report();
  void report();
  void on_message(address from, const message& m, const payload& body);
  void log_rejections();
  void send_all(const prefill_controller::outbox& out);
  void on_node_heartbeat(address from, const node_heartbeat& h);
  void on_lease_renewals(const lease_renewals& all);
  void on_cluster_update(const cluster_update& u);
  bool is_local(node_index n) const;
  bool is_removed() const;

  gateway_actor::pointer self_ = nullptr;
  runtime::host host_;
  shared_cluster cluster_;
  std::map<node_index, node_heartbeat> heartbeats_;  // the newest of each node since the report
  std::uint64_t reports_ = 0;                        // sent, to number them
  tensor_router router_;
  frame_guard guard_;
  prefill_controller prefills_;
  runtime::log_limiter rejections_;
  std::function<void()> on_removed_;
  double needed_s_ = 0;  // when it last was in the cluster or a node reported to it
  // The timer of its next event, as the router's.
  double prefills_at_s_ = never;
  std::uint64_t prefills_number_ = 0;
  // The timer of the router's next event; earlier ones are ignored by their number.
  time_ns timer_at_ = never_ns;
  std::uint64_t timer_number_ = 0;
};

}  // namespace troupe::actors
