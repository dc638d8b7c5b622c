#include "planners/plans/exact_nodes.hpp"

#include <algorithm>
#include <utility>

#include "planners/cluster/datacenter_groups.hpp"
#include "planners/plans/has.hpp"

namespace troupe::planners {

exact_nodes::exact_nodes(const cluster& c, const idle_index& idle, const job_spec& job,
                         const plan& how, std::function<bool(const allocation&)> accepts)
    : c_{c}, idle_{idle}, job_{job}, how_{how}, accepts_{std::move(accepts)} {}

/// The nodes of the plan's types with at least `min` idle GPUs, those with the fewest first: the
/// index's order for one type, merged for several.
std::vector<node_index> exact_nodes::with(std::uint32_t min) const {
  std::vector<node_index> nodes;
  for (const auto g : how_.gpu_types)
    for (auto p = idle_.first_with(g, min); p != idle_index::none; p = idle_.after(g, p))
      nodes.push_back(idle_.node_at(g, p));
  if (how_.gpu_types.size() > 1)
    std::ranges::stable_sort(nodes, {}, [&](node_index n) {
      return std::pair(idle_.idle(n), c_.gpu_of(n).memory_bytes());
    });
  return nodes;
}

/// The first `nodes` of these, all of one datacenter; empty: no datacenter has that many of them.
std::vector<node_index> exact_nodes::of_one_datacenter(const std::vector<node_index>& from,
                                                       std::uint32_t nodes) const {
  std::vector<std::vector<node_index>> by_datacenter(c_.datacenters.size());
  for (const auto n : from) {
    auto& mine = by_datacenter.at(c_.nodes[n].datacenter);
    mine.push_back(n);
    if (mine.size() == nodes) return std::move(mine);
  }
  return {};
}

/// The number of nodes ascends over the divisors of the GPUs: fewer nodes mean less traffic between
/// them. `choose(found, nodes)` chooses among those with enough idle GPUs.
template <class Choose>
allocation exact_nodes::on_fewest(Choose choose) const {
  const auto gpus = how_.gpus();
  for (std::uint32_t nodes = 1; nodes <= std::min<std::size_t>(gpus, c_.nodes.size()); ++nodes) {
    if (gpus % nodes != 0) continue;
    const auto found = with(gpus / nodes);
    if (found.size() < nodes) continue;
    allocation where;
    for (const auto n : choose(found, nodes)) where.push_back({n, gpus / nodes});
    if (!where.empty() && accepts_(where)) return where;
  }
  return {};
}

/// Numbers that differ between the nodes, whose tensor groups stay within them: by best fit.
allocation exact_nodes::unequal(const idle_index& idle) const {
  auto where = best_fit(idle, how_.gpus(), how_.gpu_types, how_.tensor_parallel);
  return !where.empty() && accepts_(where) ? where : allocation{};
}

allocation exact_nodes::in_one_datacenter() const {
  auto where = on_fewest(
      [&](const auto& found, std::uint32_t nodes) { return of_one_datacenter(found, nodes); });
  if (!where.empty() || !job_.request.unequal.value_or(false)) return where;
  if (c_.datacenters.size() < 2) return unequal(idle_);
  for (std::uint32_t d = 0; d < c_.datacenters.size() && where.empty(); ++d)
    where = unequal(idle_in(c_, idle_, group_of(c_, {d})));
  return where;
}

allocation exact_nodes::anywhere() const {
  auto where = on_fewest([](const auto& found, std::uint32_t nodes) {
    return std::vector<node_index>(found.begin(), found.begin() + nodes);
  });
  if (where.empty() && job_.request.unequal.value_or(false)) where = unequal(idle_);
  return where;
}

}  // namespace troupe::planners
