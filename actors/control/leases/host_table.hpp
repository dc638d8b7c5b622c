#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "actors/control/ledger/recorder.hpp"
#include "messages/wire/work.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/snapshot.hpp"

namespace troupe::actors {

/// The hosts by their own reports since the controller's start: which are present, how far each
/// node follows its orders, and which GPUs are idle. Not journaled: a new controller knows no host
/// to be present, and within a heartbeat all of them have reported again.
class host_table {
 public:
  using node_without_torch = planners::node_without_torch;
  /// How far a part of a lease had come by its node's last report in this epoch.
  struct part_progress {
    std::uint64_t iterations = 0;
    std::optional<program_end> program;
  };
  struct node_state {
    std::uint64_t incarnation = 0;
    std::uint64_t sequence = 0;  // of its last report or heartbeat
    std::uint64_t report = 0;    // sequence of the last report; 0: a full report is needed
    std::uint64_t followed = 0;  // orders of this epoch that it had followed by then
    std::uint64_t orders = 0;    // sequence of the last orders
    double last_report_s = 0;
    std::set<lease_id> leases;  // with a part here that has not ended
    std::map<lease_id, part_progress> reached;
    std::vector<std::uint16_t> ports;  // free ones, by its last report
  };
  struct gateway_state {
    std::uint64_t incarnation = 0, report = 0;
    double last_report_s = 0;
    gateway_traffic traffic;
  };

  /// `local`: all nodes are on one machine, and their programs share its ports.
  host_table(recorder& records, bool local) : records_{records}, local_{local} {}

  /// Everything that has a place for each host gets those of the new ones. `previous`: the cluster
  /// before; null: none.
  void follow_cluster(const cluster* previous);
  /// Once no node can have a lease of the earlier, longer duration any more: records so.
  void settle_lease_length();

  node_state& node(node_index n) { return nodes_.at(n); }
  gateway_state& gateway(std::uint32_t datacenter) { return gateways_.at(datacenter); }
  std::size_t nodes() const { return nodes_.size(); }
  std::size_t gateways() const { return gateways_.size(); }

  bool is_present(node_index n) const { return (*nodes_present_)[n]; }
  bool is_gateway_present(std::uint32_t datacenter) const {
    return (*gateways_present_)[datacenter];
  }
  void set_present(node_index n, bool present);
  void set_gateway_present(std::uint32_t datacenter, bool present);
  /// As a node's last report says; none: it does not.
  void set_python(node_index n, const std::optional<python_environment>& python);
  const shared_value<std::vector<node_without_torch>>& without_torch() const {
    return without_torch_;
  }
  const shared_value<std::vector<bool>>& nodes_present() const { return nodes_present_; }
  const shared_value<std::vector<bool>>& gateways_present() const { return gateways_present_; }

  /// The GPUs of present nodes that no lease holds and that may get work.
  const planners::idle_index& idle() const { return *idle_; }
  /// The same, for others to keep.
  std::shared_ptr<const planners::idle_index> shared_idle();
  /// After a change of the ledger.
  void refresh_idle(node_index n);

  /// After this long without a report a node's leases have expired, and its work has ended.
  double silence_limit_s() const;
  void renew_contact(node_state& node, std::uint64_t sequence);

  /// A port on which the programs of a lease can meet at rank 0's node. None: it is simulated.
  std::optional<std::uint16_t> free_port(node_index n, lease_id id) const;

  std::vector<job_id> jobs_on(node_index n) const;

  /// Broken invariants between the hosts and the ledger end the process.
  void check_all() const;

 private:
  recorder& records_;
  bool local_ = false;
  std::vector<node_state> nodes_;
  std::vector<gateway_state> gateways_;
  shared_value<std::vector<bool>> nodes_present_, gateways_present_;
  shared_value<std::vector<node_without_torch>> without_torch_;  // by index
  std::optional<planners::idle_index> idle_;
  std::shared_ptr<const planners::idle_index> shared_idle_;  // null: changed since
  std::optional<double> longest_lease_until_s_;  // nodes may have an earlier, longer lease
};

}  // namespace troupe::actors
