#include "actors/control/leases/host_table.hpp"

#include <algorithm>
#include <utility>

#include "actors/control/ledger/unions.hpp"
#include "messages/base/invariant.hpp"

namespace troupe::actors {

namespace {

/// False: it is unchanged. The flags are shared with published states, so a change copies them.
bool set_flag(shared_value<std::vector<bool>>& flags, std::size_t i, bool flag) {
  TROUPE_INVARIANT(i < flags->size(), "a host that comes or goes has a place in the cluster");
  if ((*flags)[i] == flag) return false;
  auto changed = *flags;
  changed[i] = flag;
  flags = shared_value{std::move(changed)};
  return true;
}

}  // namespace

void host_table::follow_cluster(const cluster* previous) {
  const auto& c = records_.present_cluster();
  const auto grow = [this](auto& hosts, auto& present, std::size_t size) {
    const auto before = hosts.size();
    TROUPE_INVARIANT(before <= size, "hosts that are removed keep their places");
    hosts.resize(size);
    for (auto i = before; i < size; ++i)
      hosts[i].last_report_s = records_.now();  // silence counts from here
    auto flags = *present;
    flags.resize(size, false);
    present = shared_value{std::move(flags)};
  };
  grow(nodes_, nodes_present_, c.nodes.size());
  grow(gateways_, gateways_present_, c.datacenters.size());
  // Heartbeats renew nothing before the node has reported that it follows this cluster: its lease
  // may have another length. The process of a node that had been removed has ended.
  auto present = *nodes_present_;
  for (node_index n = 0; n < nodes_.size(); ++n) {
    nodes_[n].report = 0;
    if (previous && n < previous->nodes.size() && previous->nodes[n].removed && !c.nodes[n].removed)
      present[n] = false;
  }
  nodes_present_ = shared_value{std::move(present)};
  // Rebuilt, since the index is by node and type of GPU, and both may have changed.
  idle_.emplace(c);
  shared_idle_ = nullptr;
  for (node_index n = 0; n < nodes_.size(); ++n)
    idle_->set_idle(n, is_present(n) ? records_.book().idle(n) : 0);
  TROUPE_INVARIANT(
      nodes_.size() == nodes_present_->size() && gateways_.size() == gateways_present_->size(),
      "each host is present or not");
  longest_lease_until_s_.reset();
  if (const auto longest = records_.book().roster()->longest_lease_s;
      longest > c.settings.lease_s) {
    longest_lease_until_s_ = records_.now();
    *longest_lease_until_s_ = records_.now() + silence_limit_s();
  }
  records_.note_change();
}

/// No node has been sent anything that would renew a lease of the earlier length since then
/// (`follow_cluster`).
void host_table::settle_lease_length() {
  if (!longest_lease_until_s_ || records_.now() <= *longest_lease_until_s_) return;
  auto next = *records_.book().roster();
  next.at_s = records_.wall();
  next.longest_lease_s = next.cluster.settings.lease_s;
  if (records_.record(next)) longest_lease_until_s_.reset();
}

double host_table::silence_limit_s() const {
  // A node stops its own work lease_s after the last acknowledged report; it is considered lost
  // only later, by at least the time that killing programs takes on a busy machine. The two clocks
  // need not agree: each measures a duration, and the node's begins earlier.
  constexpr double kill_s = 1;
  const auto& s = records_.present_cluster().settings;
  return (longest_lease_until_s_ ? records_.book().roster()->longest_lease_s : s.lease_s) +
         std::max(2 * s.heartbeat_s, kill_s);
}

void host_table::renew_contact(node_state& node, std::uint64_t sequence) {
  TROUPE_INVARIANT(node.last_report_s <= records_.now(),
                   "a node's last report is not in the future");
  node.sequence = sequence;
  node.last_report_s = records_.now();
}

/// The GPUs of an absent node are not idle: no job may be placed there.
void host_table::set_present(node_index n, bool present) {
  if (!set_flag(nodes_present_, n, present)) return;
  refresh_idle(n);
  records_.note_change();
}

void host_table::set_gateway_present(std::uint32_t datacenter, bool present) {
  if (set_flag(gateways_present_, datacenter, present)) records_.note_change();
}

void host_table::set_python(node_index n, const std::optional<python_environment>& python) {
  const auto known = std::ranges::lower_bound(*without_torch_, n, {}, &node_without_torch::node);
  const bool lacked = known != without_torch_->end() && known->node == n;
  const bool lacks = python && python->torch.empty();
  if (lacks == lacked && (!lacks || known->interpreter == python->interpreter)) return;
  auto changed = *without_torch_;
  std::erase_if(changed, [n](const auto& w) { return w.node == n; });
  if (lacks) {
    const auto at = std::ranges::upper_bound(changed, n, {}, &node_without_torch::node);
    changed.insert(at, {n, python->interpreter});
  }
  without_torch_ = shared_value{std::move(changed)};
  records_.note_change();
}

std::shared_ptr<const planners::idle_index> host_table::shared_idle() {
  if (!shared_idle_) shared_idle_ = std::make_shared<const planners::idle_index>(*idle_);
  return shared_idle_;
}

void host_table::refresh_idle(node_index n) {
  TROUPE_INVARIANT(idle_ && n < nodes_.size(), "the index of idle GPUs knows each node");
  const auto idle = is_present(n) ? records_.book().idle(n) : 0;
  if (idle == idle_->idle(n)) return;
  idle_->set_idle(n, idle);
  shared_idle_ = nullptr;
}

/// One that rank 0's node has found free and that no other lease there uses; consecutive leases get
/// different ones, so that a late process of the previous one cannot join.
std::optional<std::uint16_t> host_table::free_port(node_index n, lease_id id) const {
  const auto& ports = nodes_[n].ports;
  if (ports.empty()) return {};
  std::set<std::uint16_t> taken;
  for (const auto& [other, l] : records_.book().leases())
    if (l.granted.port && (local_ || l.granted.parts.front().node == n))
      taken.insert(*l.granted.port);
  for (std::size_t i = 0; i < ports.size(); ++i)
    if (const auto port = ports[(id + i) % ports.size()]; !taken.contains(port)) return port;
  // All are taken: the node tries again with other ports if this one is in use (not_started).
  return ports[id % ports.size()];
}

void host_table::check_all() const {
  const auto& book = records_.book();
  for (node_index n = 0; n < nodes_.size(); ++n) {
    const auto usable = is_present(n) ? book.idle(n) : 0;
    TROUPE_INVARIANT(idle_->idle(n) == usable,
                     "the idle GPUs that policies see are those of the ledger on present nodes");
    for (const auto id : nodes_[n].leases)
      TROUPE_INVARIANT(book.lease(id), "a node's leases are ones that are held");
    for (const auto& [id, reached] : nodes_[n].reached)
      TROUPE_INVARIANT(nodes_[n].leases.contains(id), "a node's progress is of its own leases");
  }
  for (const auto& [id, l] : book.leases())
    for (std::size_t i = 0; i < l.ended.size(); ++i) {
      const bool here = nodes_[l.granted.parts[i].node].leases.contains(id);
      TROUPE_INVARIANT(here != l.ended[i], "a part is among its node's until it has ended");
    }
}

std::vector<job_id> host_table::jobs_on(node_index n) const {
  std::vector<job_id> jobs;
  for (const auto id : nodes_[n].leases)
    if (const auto* l = records_.book().lease(id)) {
      TROUPE_INVARIANT(records_.book().job(l->granted.job), "a lease on a node is of a known job");
      const auto& j = *records_.book().job(l->granted.job);
      if (!j.members) jobs.push_back(j.id);
      for (const auto* m : records_.book().members_of(j)) jobs.push_back(m->id);
    }
  return jobs;
}

}  // namespace troupe::actors
