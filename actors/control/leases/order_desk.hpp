#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "actors/control/leases/host_table.hpp"
#include "actors/control/ledger/recorder.hpp"
#include "messages/base/find_in.hpp"

namespace troupe::actors {

/// The orders of the nodes. Orders are a node's complete desired state, derived from the ledger
/// each time: they need no acknowledgement of their own, may be lost, repeated or overtaken, and
/// the newest epoch and sequence win.
///
/// A lease is left out of its nodes' orders once it is revoked, except while its training may save
/// (its grace). Its GPUs stay held until each node has reported, under orders without the lease,
/// that the work is gone: only then may another lease have them.
class order_desk {
 public:
  /// `local`: all nodes are on this machine, so programs meet at 127.0.0.1.
  order_desk(recorder& records, host_table& hosts, bool local)
      : records_{records}, hosts_{hosts}, local_{local} {}

  void send(node_index n);
  /// To be sent when the message that is being handled has changed all that it changes.
  void send_later(node_index n) { due_.insert(n); }
  bool is_due(node_index n) const { return due_.contains(n); }
  void send_due() {
    for (const auto n : std::exchange(due_, {})) send(n);
  }

  /// A revoked lease stays ordered until then, on the monotonic clock, so that its training can
  /// save. Not known after a restart of the controller, which grants the grace once more.
  void keep_until(lease_id id, double until_s) { grace_until_s_[id] = until_s; }
  /// Leaves the lease out from the next orders on.
  void end_grace(lease_id id);
  void end_graces();
  void forget_grace(lease_id id) { grace_until_s_.erase(id); }

  /// The first orders of this epoch that did not contain the revoked lease; null: not sent yet.
  const std::uint64_t* first_without(lease_id id, node_index n) const {
    return find_in(left_out_, std::pair{id, n});
  }
  void forget_part(lease_id id, node_index n) { left_out_.erase({id, n}); }

  /// Confirms the node's lease, if its last report is known.
  lease_renewal renewal_of(node_index n);

 private:
  recorder& records_;
  host_table& hosts_;
  bool local_ = false;
  std::set<node_index> due_;
  std::map<std::pair<lease_id, node_index>, std::uint64_t> left_out_;
  std::map<lease_id, double> grace_until_s_;
};

}  // namespace troupe::actors
