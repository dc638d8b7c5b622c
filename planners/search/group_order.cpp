#include "planners/search/group_order.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "messages/base/folds.hpp"
#include "planners/cost/batch_split.hpp"

namespace troupe::planners {

namespace {

/// The cost of a boundary between two groups, first by price.
using boundary_cost = std::pair<double, double>;  // price, s
boundary_cost operator+(const boundary_cost& a, const boundary_cost& b) {
  return {a.first + b.first, a.second + b.second};
}

std::vector<std::optional<std::uint32_t>> datacenters_of(const pipeline_group& g) {
  return mapped(g.stages, &plan_stage::datacenter);
}

/// Equal prices that are added in another order may differ in their last digits.
bool is_less(const boundary_cost& a, const boundary_cost& b) {
  constexpr double rounding = 1e-12;
  if (std::abs(a.first - b.first) > rounding * b.first) return a.first < b.first;
  return a.second < b.second;
}

/// The sums go there and back.
boundary_cost between(const cluster& c, const pipeline_group& a, const pipeline_group& b,
                      std::span<const std::uint64_t> gradient_bytes) {
  boundary_cost cost{0, 0};
  for (std::size_t s = 0; s < a.stages.size() && s < b.stages.size(); ++s) {
    const auto from = a.stages[s].datacenter, to = b.stages[s].datacenter;
    if (!from || !to || *from == *to) continue;
    const auto bytes = static_cast<double>(gradient_bytes[s]);
    const auto flows = std::min(a.stages[s].tensor_parallel, b.stages[s].tensor_parallel);
    const auto wan = link_between(c, *from, *to, 0);
    cost.first += bytes / bytes_per_gb *
                  (traffic_price_per_gb(c, *from, *to) + traffic_price_per_gb(c, *to, *from));
    cost.second += 2 * (wan.latency_us * 1e-6 + bytes / wan.bytes_s(bytes, flows));
  }
  return cost;
}

using chain = std::vector<std::size_t>;

boundary_cost cost_of(const chain& order, const std::vector<std::vector<boundary_cost>>& costs) {
  boundary_cost sum{0, 0};
  for (std::size_t i = 1; i < order.size(); ++i) sum = sum + costs[order[i - 1]][order[i]];
  return sum;
}

/// From `first`, always to the nearest that is left.
chain nearest_from(std::size_t first, const std::vector<std::vector<boundary_cost>>& costs) {
  chain order{first}, left = indices(costs.size());
  std::erase(left, first);
  while (!left.empty()) {
    const auto next = *std::ranges::min_element(
        left, is_less, [&](std::size_t x) { return costs[order.back()][x]; });
    order.push_back(next);
    std::erase(left, next);
  }
  return order;
}

chain best_chain(const std::vector<std::vector<boundary_cost>>& costs) {
  constexpr std::size_t max_permuted = 6;
  auto order = indices(costs.size()), best = order;
  auto min = cost_of(best, costs);
  const auto consider = [&](const chain& x) {
    if (const auto cost = cost_of(x, costs); is_less(cost, min)) min = cost, best = x;
  };
  if (costs.size() <= max_permuted) {
    while (std::next_permutation(order.begin(), order.end())) consider(order);
  } else {
    for (std::size_t i = 0; i < costs.size(); ++i) consider(nearest_from(i, costs));
  }
  return best;
}

}  // namespace

std::vector<std::size_t> order_of_groups(const cluster& c, std::span<const pipeline_group> groups,
                                         std::span<const std::uint64_t> gradient_bytes) {
  std::vector<std::vector<std::size_t>> sets;  // groups in the same datacenters
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto same = std::ranges::find_if(sets, [&](const auto& set) {
      return datacenters_of(groups[set.front()]) == datacenters_of(groups[g]);
    });
    if (same == sets.end())
      sets.push_back({g});
    else
      same->push_back(g);
  }
  std::vector<std::vector<boundary_cost>> costs(sets.size());
  for (std::size_t a = 0; a < sets.size(); ++a)
    for (const auto& b : sets)
      costs[a].push_back(between(c, groups[sets[a].front()], groups[b.front()], gradient_bytes));
  std::vector<std::size_t> order;
  if (sets.empty()) return order;
  for (const auto set : best_chain(costs))
    order.insert(order.end(), sets[set].begin(), sets[set].end());
  return order;
}

}  // namespace troupe::planners
