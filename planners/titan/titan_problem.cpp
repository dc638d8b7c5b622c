#include "planners/titan/titan_problem.hpp"

#include <algorithm>
#include <bit>

namespace troupe::planners {

std::vector<std::uint32_t> size_classes(std::uint32_t node_gpus) {
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t size = 1; size < node_gpus && node_gpus % size == 0; size *= 2)
    sizes.push_back(size);
  sizes.push_back(node_gpus);
  return sizes;
}

std::vector<std::uint32_t> titan_counts(std::uint32_t node_gpus, std::uint32_t max) {
  constexpr std::uint32_t single_steps = 16;  // nodes
  auto counts = size_classes(node_gpus);
  for (std::uint64_t nodes = 2; nodes * node_gpus <= max;
       nodes = nodes < single_steps ? nodes + 1 : nodes * 2)
    counts.push_back(static_cast<std::uint32_t>(nodes * node_gpus));
  std::erase_if(counts, [&](std::uint32_t gpus) { return gpus > max; });
  return counts;
}

bool has_room(const titan_pool& p, std::span<const std::uint32_t> counts) {
  return std::ranges::all_of(size_classes(p.node_gpus), [&](std::uint32_t size) {
    std::uint64_t places = 0, needed = 0;
    for (const auto idle : p.idle) places += idle / size;
    for (const auto gpus : counts)
      if (gpus >= size) needed += gpus / size;
    return needed <= places;
  });
}

titan_answer solve_titan(const titan_problem& p, const titan_limits& limits) {
  return is_titan_knapsack(p) ? solve_titan_knapsack(p) : solve_titan_program(p, limits);
}

}  // namespace troupe::planners
