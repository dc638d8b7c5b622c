#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "actors/control/desired_work.hpp"
#include "actors/control/orchestrator.hpp"
#include "actors/protocol/timing.hpp"

// The orchestrator's exchange with other hosts: reports, heartbeats, orders and timeouts.

namespace troupe::actors {

namespace {

constexpr std::size_t max_ports = 256;  // of a node, that are kept

/// False: it is unchanged.
bool set_flag(shared_value<std::vector<bool>>& flags, std::size_t i, bool flag) {
  if ((*flags)[i] == flag) return false;
  auto changed = *flags;
  changed[i] = flag;
  flags = shared_value{std::move(changed)};
  return true;
}

}  // namespace

double orchestrator_state::silence_limit_s() const {
  // A node stops its own work lease_s after the last acknowledged report; it is considered lost
  // only later, by at least the time that killing programs takes on a busy machine.
  constexpr double kill_s = 1;
  const auto& s = cluster_->settings;
  return (longest_lease_until_s_ ? ledger_->roster()->longest_lease_s : s.lease_s) +
         std::max(2 * s.heartbeat_s, kill_s);
}

void orchestrator_state::on_node_report(address from, const node_report& r) {
  const auto& c = *cluster_;
  if (!is_node(c, from)) return;
  const auto n = node_of(from);
  auto& node = nodes_[n];
  if (std::pair{r.incarnation, r.sequence} <= std::pair{node.incarnation, node.sequence}) return;
  // Its lease may have another length. Nothing renews that until it has the present one.
  if (r.cluster.value_or(0) < c.version) return reply(from, cluster_update{c});
  if (may_have_predecessor(node, r)) return;
  renew_contact(node, r.sequence);
  node.incarnation = r.incarnation;
  node.report = 0;
  if (r.journal != 0 && r.journal != host_.journal->id()) {
    // It works for another journal, and will start over when it receives this one's orders.
    set_present(n, false);
    return send_orders(n);
  }
  check_history(n, r);
  node.report = r.sequence;
  if (r.ports) {
    node.ports = *r.ports;
    std::erase_if(node.ports, [](std::uint16_t port) { return port < 1024; });
    if (node.ports.size() > max_ports) node.ports.resize(max_ports);
  }
  node.followed = r.epoch == ledger_->epoch() ? r.orders : 0;
  const std::vector<lease_id> here{node.leases.begin(), node.leases.end()};
  for (auto id : here) on_part_report(n, id, r);
  for (const auto& p : r.parts) {
    if (node.leases.contains(p.lease)) reached_[{p.lease, n}] = {p.iterations, end_of(p.program)};
    if (p.now == part_report::state::succeeded) on_late_success(n, p, r.incarnation);
  }
  // Work that the ledger does not know may still hold GPUs: the node is unusable until that is
  // gone.
  const bool clean = std::none_of(r.parts.begin(), r.parts.end(), [&](const part_report& p) {
    return p.now == part_report::state::running && !node.leases.contains(p.lease);
  });
  // A node with a lost device gets no new work; its present work continues.
  if (!r.lost.empty())
    set_present(n, false);
  else if (clean)
    set_present(n, true);
  if (node.followed == 0 || node.followed != node.orders) to_order_.insert(n);
  if (!to_order_.contains(n))
    reply(gateway_address(c.nodes[n].datacenter), lease_renewals{{renewal_of(n)}});
  for (auto other : std::exchange(to_order_, {})) send_orders(other);
}

void orchestrator_state::renew_contact(node_state& node, std::uint64_t sequence) {
  node.sequence = sequence;
  node.last_report_s = now();
}

/// A host with a new state directory cannot kill the programs of an earlier process of the same
/// name. These end when their leases expire: until then its reports are ignored.
bool orchestrator_state::may_have_predecessor(const node_state& node, const node_report& r) const {
  return r.new_state && r.incarnation != node.incarnation && !node.leases.empty() &&
         now() - node.last_report_s <= silence_limit_s();
}

lease_renewal orchestrator_state::renewal_of(node_index n) const {
  const auto& node = nodes_[n];
  return {n,
          node.incarnation,
          host_.journal->id(),
          ledger_->epoch(),
          node.orders,
          node.report == 0 ? 0 : node.sequence};
}

/// No renewal: its report is unknown, or it is answered with orders.
std::optional<lease_renewal> orchestrator_state::on_heartbeat(const node_heartbeat& h) {
  auto& node = nodes_[h.node];
  if (std::pair{h.incarnation, h.sequence} <= std::pair{node.incarnation, node.sequence}) return {};
  if (h.incarnation != node.incarnation || h.report != node.report || node.report == 0) {
    auto in_full = renewal_of(h.node);
    in_full.incarnation = h.incarnation;
    in_full.acknowledged = 0;
    return in_full;
  }
  renew_contact(node, h.sequence);
  if (node.followed != 0 && node.followed == node.orders) return renewal_of(h.node);
  to_order_.insert(h.node);
  return {};
}

void orchestrator_state::on_gateway_report(address from, const gateway_report& r) {
  const auto& c = *cluster_;
  if (!is_gateway(c, from)) return;
  auto& g = gateways_[datacenter_of(from)];
  if (std::pair{r.incarnation, r.sequence} <= std::pair{g.incarnation, g.report}) return;
  g.incarnation = r.incarnation;
  g.report = r.sequence;
  g.last_report_s = now();
  if (r.cluster.value_or(0) < c.version) reply(from, cluster_update{c});
  set_gateway_present(datacenter_of(from), true);
  report_traffic(datacenter_of(from), r.traffic.value_or(gateway_traffic{}));
  lease_renewals result;
  for (const auto& h : r.heartbeats) {
    if (h.node >= nodes_.size() || gateway_address(c.nodes[h.node].datacenter) != from) continue;
    if (auto renewal = on_heartbeat(h)) result.renewals.push_back(*renewal);
  }
  if (!result.renewals.empty()) reply(from, std::move(result));
  for (auto n : std::exchange(to_order_, {})) send_orders(n);
}

void orchestrator_state::report_traffic(std::uint32_t datacenter, const gateway_traffic& now) {
  auto& known = gateways_[datacenter].traffic;
  if (known == now) return;
  known = now;
  if (status_) self_->send(status_, gateway_traffic_changed{datacenter, now});
}

void orchestrator_state::set_present(node_index n, bool present) {
  if (!set_flag(nodes_present_, n, present)) return;
  refresh_idle(n);
  state_has_changed();
}

void orchestrator_state::set_gateway_present(std::uint32_t datacenter, bool present) {
  if (set_flag(gateways_present_, datacenter, present)) state_has_changed();
}

void orchestrator_state::refresh_idle(node_index n) {
  const auto idle = (*nodes_present_)[n] ? ledger_->idle(n) : 0;
  if (idle == idle_->idle(n)) return;
  idle_->set_idle(n, idle);
  published_idle_ = nullptr;
}

void orchestrator_state::on_tick() {
  const auto& c = *cluster_;
  if (auto ok = host_.journal->check(); !ok) throw std::runtime_error(ok.error().text);
  for (node_index n = 0; n < nodes_.size(); ++n) {
    auto& node = nodes_[n];
    if (now() - node.last_report_s <= silence_limit_s()) continue;
    set_present(n, false);
    node.report = 0;
    const std::vector<lease_id> here{node.leases.begin(), node.leases.end()};
    for (auto id : here)
      if (const auto* l = ledger_->lease(id))
        lose_part(
            id, part_on(*l, n),
            fmt::format("node {} was silent for {:.3g} s", c.nodes[n].name, silence_limit_s()));
  }
  for (std::uint32_t d = 0; d < gateways_.size(); ++d)
    if (now() - gateways_[d].last_report_s > silence_limit_s()) set_gateway_present(d, false);
  settle_lease_length();
  follow_awaited_file();
  end_overdue();
  answer_held_submissions();
  end_long_runs();
  end_graces();
  end_rank_waits();
  for (auto n : std::exchange(to_order_, {})) send_orders(n);
  state_serving();
  compact();
  self_->delayed_send(orchestrator_actor{self_}, nanoseconds_of(c.settings.heartbeat_s), tick{});
}

void orchestrator_state::send_orders(node_index n) {
  auto& node = nodes_[n];
  if (node.incarnation == 0) return;  // it has never reported
  node_orders orders{ledger_->epoch(),   ++node.orders, node.incarnation, node.sequence, {},
                     host_.journal->id()};
  for (auto id : node.leases) {
    const auto& l = *ledger_->lease(id);
    const auto part = part_on(l, n);
    const auto grace = grace_until_s_.find(id);
    // A node that has followed these orders and does not have the lease will not start it.
    if (l.revoked) left_out_.emplace(std::pair{id, n}, node.orders);
    if (l.revoked && !reached_.contains({id, n})) orders.answer = true;
    if (l.revoked && grace == grace_until_s_.end()) continue;
    orders.work.push_back(work_of(*cluster_, *ledger_, training_, l, part, options_.local));
    if (l.revoked) orders.work.back().stop_within_s = std::max(1e-3, grace->second - now());
  }
  reply(node_address(n), std::move(orders));
}

/// To every front and gateway; repeated, since it may be lost and they may be new. Where nobody
/// asks for completions nobody needs it.
void orchestrator_state::state_serving() {
  serving_changed_ = false;
  const auto& c = *cluster_;
  if (c.fronts.empty()) return;
  auto all = served_.statement(*ledger_);
  all.journal = host_.journal->id();
  all.epoch = ledger_->epoch();
  all.sequence = ++serving_statements_;
  for (std::uint32_t f = 0; f < c.fronts.size(); ++f)
    if (!c.fronts[f].removed) reply(front_address(f), all);
  for (std::uint32_t d = 0; d < c.datacenters.size(); ++d)
    if (!c.datacenters[d].removed) reply(gateway_address(d), all);
}

}  // namespace troupe::actors
