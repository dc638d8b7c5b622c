#pragma once

#include <cstdint>
#include <optional>

#include "actors/control/interfaces/interfaces.hpp"
#include "actors/control/leases/host_table.hpp"
#include "actors/control/leases/lease_manager.hpp"
#include "actors/control/leases/order_desk.hpp"
#include "actors/control/ledger/recorder.hpp"

namespace troupe::actors {

/// The reports and heartbeats of nodes and gateways, and their silence. A report is a node's
/// complete actual state; the difference from the ledger determines what happens next. A heartbeat
/// states that nothing has changed since a report that both sides know.
class host_reports {
 public:
  host_reports(recorder& records, host_table& hosts, order_desk& orders, lease_manager& leases,
               const controller_links& links)
      : records_{records}, hosts_{hosts}, orders_{orders}, leases_{leases}, links_{links} {}

  void on(const inbound<node_report>& m);
  void on(const inbound<gateway_report>& m);
  /// Gives up hosts that have been silent for too long.
  void on_tick();

 private:
  bool may_have_predecessor(const host_table::node_state& node, const node_report& r) const;
  void check_history(node_index n, const node_report& r) const;
  std::optional<lease_renewal> on_heartbeat(const node_heartbeat& h);
  void report_traffic(std::uint32_t datacenter, const gateway_traffic& now);

  recorder& records_;
  host_table& hosts_;
  order_desk& orders_;
  lease_manager& leases_;
  const controller_links& links_;
};

}  // namespace troupe::actors
