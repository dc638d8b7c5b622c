#include "actors/control/leases/order_desk.hpp"

#include <algorithm>

#include "actors/control/leases/desired_work.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/invariant.hpp"

namespace troupe::actors {

/// The sequence number is drawn for every statement, also for an equal one: a node that reports it
/// has followed this state or a later one.
void order_desk::send(node_index n) {
  auto& node = hosts_.node(n);
  if (node.incarnation == 0) return;  // it has never reported
  const auto& book = records_.book();
  node_orders orders{book.epoch(),
                     ++node.orders,
                     node.incarnation,
                     node.sequence,
                     {},
                     records_.host().journal->id()};
  for (auto id : node.leases) {
    TROUPE_INVARIANT(book.lease(id) != nullptr, "a node's leases are ones that the ledger has");
    const auto& l = *book.lease(id);
    const auto part = part_on(l, n);
    TROUPE_INVARIANT(part < l.ended.size() && !l.ended[part],
                     "a node's lease has a part there that has not ended");
    TROUPE_INVARIANT(node.orders > 0 && book.epoch() > 0,
                     "orders have a number, and are of an epoch");
    const auto* grace_until_s = find_in(grace_until_s_, id);
    // A node that has followed these orders and does not have the lease will not start it.
    if (l.revoked) left_out_.emplace(std::pair{id, n}, node.orders);
    // Whether it ever started is not known: the node must report at once, for the GPUs' sake.
    if (l.revoked && !node.reached.contains(id)) orders.answer = true;
    if (l.revoked && !grace_until_s) continue;
    orders.work.push_back(
        work_of(records_.present_cluster(), book, records_.trainings(), l, part, local_));
    TROUPE_INVARIANT(!l.revoked || grace_until_s,
                     "a revoked lease stays ordered for its grace alone");
    if (l.revoked)
      orders.work.back().stop_within_s = std::max(1e-3, *grace_until_s - records_.now());
  }
  // Held back with the entries that they follow from: a node must not run what a crash could undo.
  records_.reply(node_address(n), std::move(orders));
}

void order_desk::end_grace(lease_id id) {
  if (grace_until_s_.erase(id) == 0) return;
  if (const auto* l = records_.book().lease(id))
    for (const auto& part : l->granted.parts) send_later(part.node);
}

void order_desk::end_graces() {
  const auto all = grace_until_s_;
  for (const auto& [id, until_s] : all)
    if (records_.now() >= until_s || !records_.book().lease(id)) end_grace(id);
}

/// A renewal stands for orders that would repeat the last ones.
lease_renewal order_desk::renewal_of(node_index n) {
  const auto& node = hosts_.node(n);
  TROUPE_INVARIANT(node.report <= node.sequence,
                   "a node's last report is no newer than its last sign of life");
  return {n,
          node.incarnation,
          records_.host().journal->id(),
          records_.book().epoch(),
          node.orders,
          node.report == 0 ? 0 : node.sequence};
}

}  // namespace troupe::actors
