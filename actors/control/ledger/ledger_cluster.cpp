#include <algorithm>
#include <ranges>
#include <utility>

#include <fmt/format.h>

#include "actors/control/ledger/ledger.hpp"
#include "messages/base/invariant.hpp"

// The ledger's part about the cluster: its nodes, their GPUs, and those that get no work.

namespace troupe::actors {

std::vector<std::uint16_t> ledger::take_lowest(node_index n, std::uint32_t count,
                                               std::optional<lease_id> after) const {
  std::vector<std::uint16_t> result;
  const auto& holders = nodes_.at(n).holders;
  const auto take = [&](lease_id from) {
    for (std::uint16_t d = 0; d < holders.size() && result.size() < count; ++d)
      if (holders[d] == from && successor(n, d) == 0) result.push_back(d);
  };
  if (after) take(*after);
  take(0);
  std::ranges::sort(result);
  TROUPE_INVARIANT(result.size() == count, "as many GPUs are free as are taken");
  TROUPE_INVARIANT(std::ranges::adjacent_find(result) == result.end(), "no GPU is taken twice");
  return result;
}

std::uint32_t ledger::to_succeed(node_index n, lease_id held) const {
  const auto& holders = nodes_.at(n).holders;
  std::uint32_t count = 0;
  for (std::uint16_t d = 0; d < holders.size(); ++d)
    count += holders[d] == held && successor(n, d) == 0;
  return count;
}

expected<void> ledger::on(const cluster_changed& e) {
  const auto& now = e.cluster.nodes;
  if (*roster_) {
    const auto& before = (*roster_)->cluster.nodes;
    if (before.size() > now.size() ||
        !std::ranges::equal(before, now | std::views::take(before.size()), {}, &node::name,
                            &node::name))
      return contradiction("a change of the cluster moves its nodes");
  } else if (leases_.empty()) {
    nodes_ = {};  // until here they were those of the file
  }
  // A node's GPUs may change only while no lease holds any: leases name GPUs by number.
  for (node_index n = 0; n < now.size(); ++n) {
    auto held = nodes_.contains(n) ? nodes_.at(n) : node_gpus{};
    held.removed = now[n].removed;
    const bool busy = held.idle < held.holders.size();
    held.memory_bytes = e.cluster.gpu_of(n).memory_bytes();
    held.gpu_type = e.cluster.gpu_of(n).name;
    if (held.removed) {
      held.keep_only_held_if_removed();
      held.idle = static_cast<std::uint32_t>(std::ranges::count(held.holders, lease_id{0}));
      TROUPE_INVARIANT(held.holders.empty() || held.idle < held.holders.size(),
                       "a removed node keeps the GPUs up to the last one that is held");
      drained_.erase(n);
    } else if (!busy) {
      held.holders.assign(now[n].gpus, 0), held.idle = now[n].gpus;
    } else if (now[n].gpus != held.holders.size()) {
      return contradiction("node {} changes while it has work", now[n].name);
    }
    nodes_.set(n, std::move(held));
  }
  TROUPE_INVARIANT(nodes_.size() >= now.size(),
                   "the ledger has a place for each node of the cluster");
  roster_ = shared_value{std::optional{e}};
  return {};
}

expected<void> ledger::on(const node_drained& e) {
  if (!nodes_.contains(e.node))
    return contradiction("node {} is drained, and does not exist", e.node);
  if (e.drained)
    drained_.set(e.node, e);
  else
    drained_.erase(e.node);
  return {};
}

/// The reason is the detail of the jobs that are stopped for it.
std::optional<std::string> ledger::must_stop(node_index n) const {
  const auto name = [&] {
    return *roster_ ? (*roster_)->cluster.nodes[n].name : std::to_string(n);
  };
  if (nodes_.at(n).removed) return fmt::format("node {} was removed from the cluster", name());
  const auto* d = drained_.find(n);
  if (d == nullptr || !d->stop) return {};
  return fmt::format("node {} was drained by {}", name(), d->by);
}

std::string ledger::gpu_type_of(const lease_granted& g) const {
  TROUPE_INVARIANT(!g.parts.empty(), "a lease that has a type of GPU has parts");
  const auto& first = nodes_.at(g.parts.front().node).gpu_type;
  const bool same = std::ranges::all_of(
      g.parts, [&](const lease_part& p) { return nodes_.at(p.node).gpu_type == first; });
  return same ? first : std::string{};
}

/// The job ran out of memory on a GPU of `memory`: predictions for it are too small by at least the
/// ratio of `memory` to the prediction that fit. If none was predicted to fit, only this ratio is
/// known. What the attempt had is written down for policies that try more.
void ledger::raise_memory(job_record& j, const lease_granted& g) const {
  double memory = nodes_.at(g.parts.front().node).memory_bytes;
  std::size_t gpus = 0;
  for (const auto& part : g.parts) {
    memory = std::min(memory, nodes_.at(part.node).memory_bytes);
    gpus += part.devices.size();
  }
  TROUPE_INVARIANT(gpus > 0, "an attempt that ran out of memory had GPUs");
  j.history.tried_gpus = static_cast<std::uint32_t>(gpus);
  j.history.tried_bytes = memory;
  constexpr double a_little_more = 1.0001;
  if (g.predicted_bytes > 0 && g.predicted_bytes < memory)
    j.history.factor *= a_little_more * memory / g.predicted_bytes;
  else
    j.history.bytes_floor = std::max(j.history.bytes_floor, g.predicted_bytes);
}

}  // namespace troupe::actors
