#pragma once

#include <map>
#include <memory>

#include "actors/gateway/tensor_router.hpp"
#include "actors/protocol/permissions.hpp"
#include "actors/protocol/protocol.hpp"
#include "runtime/host/host.hpp"

namespace troupe::actors {

/// The only entry to a datacenter: forwards frames between its nodes, the controller and the other
/// gateways. Batches its nodes' heartbeats for the controller and distributes the replies.
class gateway_state {
 public:
  gateway_state() = default;
  void start(gateway_actor::pointer self, runtime::host h, std::shared_ptr<const troupe::cluster> c,
             bool virtual_time, link_slowdown slow_links);
  void pass_on(const frame& f);
  void on_tick();
  void report_heartbeats();
  void look(std::uint64_t number);

 private:
  void arm();
  void report();
  void take(address from, const message& m);
  bool is_mine(node_index n) const;

  gateway_actor::pointer self_ = nullptr;
  runtime::host host_;
  std::shared_ptr<const troupe::cluster> cluster_;
  std::map<node_index, node_heartbeat> gathered_;  // since the last report
  std::uint64_t reports_ = 0;
  tensor_router gate_;
  frame_guard guard_;
  // The one timer that counts; those before it are ignored.
  time_ns armed_at_ = never_ns;
  std::uint64_t armed_ = 0;
};

gateway_actor::behavior_type gateway(gateway_actor::stateful_pointer<gateway_state> self,
                                     runtime::host h, std::shared_ptr<const troupe::cluster> c,
                                     bool virtual_time, link_slowdown slow_links);

}  // namespace troupe::actors
