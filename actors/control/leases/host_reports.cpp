#include "actors/control/leases/host_reports.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "actors/control/leases/desired_work.hpp"
#include "actors/control/ledger/bounded_reports.hpp"
#include "messages/base/invariant.hpp"

namespace troupe::actors {

void host_reports::on(const inbound<node_report>& m) {
  const auto r = bounded(m.body);
  const auto& c = records_.present_cluster();
  const auto& book = records_.book();
  if (!is_node(c, m.from)) return;
  const auto n = node_of(m.from);
  auto& node = hosts_.node(n);
  // Reports may be overtaken on their way, and a stopped process may wake up beside its successor.
  // An old state that is believed would free GPUs that are in use, or end work that runs.
  if (std::pair{r.incarnation, r.sequence} <= std::pair{node.incarnation, node.sequence}) return;
  // Its lease may have another length. Nothing renews that until it has the present one.
  if (r.cluster.value_or(0) < c.version) return records_.reply(m.from, cluster_update{c});
  if (may_have_predecessor(node, r)) return;
  TROUPE_INVARIANT(r.incarnation >= node.incarnation,
                   "a node's process is not replaced by an earlier one");
  hosts_.renew_contact(node, r.sequence);
  node.incarnation = r.incarnation;
  node.report = 0;
  if (r.journal != 0 && r.journal != records_.host().journal->id()) {
    // It works for another journal, and will start over when it receives this one's orders.
    hosts_.set_present(n, false);
    return orders_.send(n);
  }
  check_history(n, r);
  node.report = r.sequence;
  if (r.ports) node.ports = *r.ports;
  hosts_.set_python(n, r.python);
  node.followed = r.epoch == book.epoch() ? r.orders : 0;
  const std::vector<lease_id> here{node.leases.begin(), node.leases.end()};
  for (auto id : here) leases_.on_part_report(n, id, r);
  for (const auto& p : r.parts) {
    if (node.leases.contains(p.lease)) {
      node.reached[p.lease] = {p.iterations, leases_.end_of_program(p)};
      leases_.record_saved(p.lease);
    }
    if (p.now == part_report::state::succeeded) leases_.on_late_success(n, p, r.incarnation);
  }
  // Work that the ledger does not know may still hold GPUs: the node is unusable until that is
  // gone.
  const bool clean = std::none_of(r.parts.begin(), r.parts.end(), [&](const part_report& p) {
    return p.now == part_report::state::running && !node.leases.contains(p.lease);
  });
  // A node with a lost device gets no new work; its present work continues.
  if (!r.lost.empty())
    hosts_.set_present(n, false);
  else if (clean)
    hosts_.set_present(n, true);
  if (node.followed == 0 || node.followed != node.orders) orders_.send_later(n);
  if (!orders_.is_due(n))
    records_.reply(gateway_address(c.nodes[n].datacenter), lease_renewals{{orders_.renewal_of(n)}});
  orders_.send_due();
}

/// A host with a new state directory cannot kill the programs of an earlier process of the same
/// name. These end when their leases expire: until then its reports are ignored.
bool host_reports::may_have_predecessor(const host_table::node_state& node,
                                        const node_report& r) const {
  return r.new_state && r.incarnation != node.incarnation && !node.leases.empty() &&
         records_.now() - node.last_report_s <= hosts_.silence_limit_s();
}

/// Nodes know what the journal has contained. A node that has followed orders of an epoch that is
/// unknown to this journal, though the id is the same, or that has a lease that was never granted,
/// proves that the journal has lost its end.
void host_reports::check_history(node_index n, const node_report& r) const {
  if (r.journal == 0) return;
  const auto& book = records_.book();
  const bool known = book.knows_epoch(r.epoch);
  const auto unknown = std::find_if(r.parts.begin(), r.parts.end(), [&](const part_report& p) {
    return p.lease >= book.next_lease();
  });
  if (known && unknown == r.parts.end()) return;
  throw std::runtime_error(fmt::format(
      "node {} has followed orders that this journal does not contain ({} {}): the journal has "
      "lost its latest entries, like an older copy. Restore the newest copy, or start the "
      "controller once with --accept-older-journal to continue without them",
      records_.present_cluster().nodes[n].name, known ? "lease" : "epoch",
      known ? unknown->lease : r.epoch));
}

/// No renewal: its report is unknown, or it is answered with orders. A renewal extends a lease, so
/// it is given only to a node of which both sides know that its state is the ordered one.
std::optional<lease_renewal> host_reports::on_heartbeat(const node_heartbeat& h) {
  auto& node = hosts_.node(h.node);
  if (std::pair{h.incarnation, h.sequence} <= std::pair{node.incarnation, node.sequence}) return {};
  if (h.incarnation != node.incarnation || h.report != node.report || node.report == 0) {
    auto in_full = orders_.renewal_of(h.node);
    in_full.incarnation = h.incarnation;
    in_full.acknowledged = 0;
    return in_full;
  }
  TROUPE_INVARIANT(h.sequence > node.report, "a heartbeat is newer than the report that it names");
  hosts_.renew_contact(node, h.sequence);
  if (node.followed != 0 && node.followed == node.orders) return orders_.renewal_of(h.node);
  orders_.send_later(h.node);
  return {};
}

void host_reports::on(const inbound<gateway_report>& m) {
  const auto& r = m.body;
  const auto& c = records_.present_cluster();
  if (!is_gateway(c, m.from)) return;
  const auto datacenter = datacenter_of(m.from);
  auto& g = hosts_.gateway(datacenter);
  if (std::pair{r.incarnation, r.sequence} <= std::pair{g.incarnation, g.report}) return;
  TROUPE_INVARIANT(datacenter < hosts_.gateways(), "a gateway that reports is one of the cluster");
  g.incarnation = r.incarnation;
  g.report = r.sequence;
  g.last_report_s = records_.now();
  if (r.cluster.value_or(0) < c.version) records_.reply(m.from, cluster_update{c});
  hosts_.set_gateway_present(datacenter, true);
  report_traffic(datacenter, r.traffic.value_or(gateway_traffic{}));
  lease_renewals result;
  for (const auto& h : r.heartbeats) {
    // A gateway speaks for the nodes of its own datacenter only.
    if (h.node >= hosts_.nodes() || gateway_address(c.nodes[h.node].datacenter) != m.from) continue;
    if (auto renewal = on_heartbeat(h)) result.renewals.push_back(*renewal);
  }
  if (!result.renewals.empty()) records_.reply(m.from, std::move(result));
  orders_.send_due();
}

void host_reports::report_traffic(std::uint32_t datacenter, const gateway_traffic& now) {
  auto& known = hosts_.gateway(datacenter).traffic;
  if (known == now) return;
  known = now;
  if (links_.status) links_.self->send(links_.status, gateway_traffic_changed{datacenter, now});
}

void host_reports::on_tick() {
  for (node_index n = 0; n < hosts_.nodes(); ++n) {
    auto& node = hosts_.node(n);
    const auto limit_s = hosts_.silence_limit_s();
    TROUPE_INVARIANT(limit_s > records_.present_cluster().settings.lease_s,
                     "a node is given up only after its lease has expired");
    if (records_.now() - node.last_report_s <= limit_s) continue;
    hosts_.set_present(n, false);
    node.report = 0;
    const std::vector<lease_id> here{node.leases.begin(), node.leases.end()};
    for (auto id : here)
      if (const auto* l = records_.book().lease(id))
        leases_.lose_part(id, part_on(*l, n),
                          fmt::format("node {} was silent for {:.3g} s",
                                      records_.present_cluster().nodes[n].name, limit_s));
  }
  for (std::uint32_t d = 0; d < hosts_.gateways(); ++d)
    if (records_.now() - hosts_.gateway(d).last_report_s > hosts_.silence_limit_s())
      hosts_.set_gateway_present(d, false);
}

}  // namespace troupe::actors
