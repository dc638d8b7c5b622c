#include "planners/search/job_space/gpu_kinds.hpp"

#include <algorithm>

#include "planners/cost/stage_time.hpp"

namespace troupe::planners {

gpu_kinds::gpu_kinds(const cluster& c, const idle_index& idle, const job_spec& job)
    : of_nodes_(c.nodes.size()) {
  for (node_index n = 0; n < c.nodes.size(); ++n) {
    if (idle.idle(n) == 0) continue;
    const gpu_kind k{c.nodes[n].gpu, emulated_speed(c, n, job)};
    of_nodes_[n] = find(k);
    if (of_nodes_[n] == all_.size()) all_.push_back(k);
  }
}

std::uint32_t gpu_kinds::find(const gpu_kind& k) const {
  return static_cast<std::uint32_t>(std::ranges::find(all_, k) - all_.begin());
}

std::vector<gpu_index> gpu_kinds::types() const {
  std::vector<gpu_index> out;
  for (const auto& k : all_)
    if (std::ranges::find(out, k.gpu) == out.end()) out.push_back(k.gpu);
  return out;
}

std::optional<allocation> allocation_of(const cluster& c, const idle_index& idle,
                                        const gpu_kinds& kinds,
                                        const std::vector<kind_seat>& seats) {
  allocation where;
  std::vector<std::uint32_t> left(c.nodes.size());
  for (node_index n = 0; n < left.size(); ++n) left[n] = idle.idle(n);
  const auto suits = [&](node_index n, const kind_seat& s) {
    return left[n] >= s.tensor && kinds.of_nodes()[n] == s.kind &&
           c.nodes[n].datacenter == s.datacenter;
  };
  for (const auto& s : seats) {
    const auto used =
        std::ranges::find_if(where, [&](const node_share& x) { return suits(x.node, s); });
    if (used != where.end()) {
      used->gpus += s.tensor, left[used->node] -= s.tensor;
      continue;
    }
    node_index n = 0;
    while (n < left.size() && !suits(n, s)) ++n;
    if (n == left.size()) return {};
    where.push_back({n, s.tensor});
    left[n] -= s.tensor;
  }
  // As the layout: the first node of the type and datacenter with room, of whatever speed.
  auto room = where;
  for (std::size_t i = 0; i < seats.size(); ++i) {
    const auto type = kinds[seats[i].kind].gpu;
    const auto first = std::ranges::find_if(room, [&](const node_share& x) {
      return x.gpus >= seats[i].tensor && c.nodes[x.node].gpu == type &&
             c.nodes[x.node].datacenter == seats[i].datacenter;
    });
    if (first == room.end() || kinds.of_nodes()[first->node] != seats[i].kind) return {};
    first->gpus -= seats[i].tensor;
  }
  return where;
}

}  // namespace troupe::planners
