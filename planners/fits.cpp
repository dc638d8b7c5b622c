#include "planners/fits.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace troupe::planners {

expected<void> fits(const cluster& c, const idle_index& idle, const plan& how,
                    const allocation& where) {
  using kind = reason::kind;
  if (where.empty()) return refuse(kind::invalid, "the allocation is empty");
  std::uint64_t sum = 0;
  for (const auto& share : where) {
    if (share.node >= c.nodes.size()) {
      return refuse(kind::unknown, fmt::format("there is no node number {}", share.node));
    }
    if (share.gpus == 0) {
      return refuse(kind::invalid, fmt::format("takes no GPU of {}", c.nodes[share.node].name));
    }
    sum += share.gpus;
  }
  for (std::size_t i = 0; i < where.size(); ++i) {
    const auto same = [&](const node_share& other) { return other.node == where[i].node; };
    if (std::any_of(where.begin(), where.begin() + static_cast<std::ptrdiff_t>(i), same)) {
      return refuse(kind::invalid, fmt::format("names {} twice", c.nodes[where[i].node].name));
    }
  }
  if (sum != how.gpus()) {
    return refuse(kind::invalid,
                  fmt::format("the plan needs {} GPUs and the allocation has {}", how.gpus(), sum));
  }
  for (const auto& share : where) {
    const auto& gpu = c.gpu_of(share.node);
    if (!(gpu.memory_bytes() > how.bytes_per_gpu)) {
      return refuse(kind::infeasible,
                    fmt::format("needs more than {:.1f} GB a GPU; {} of {} has {:g}",
                                how.bytes_per_gpu / bytes_per_gb, gpu.name,
                                c.nodes[share.node].name, gpu.memory_gb));
    }
    if (share.gpus > idle.idle(share.node)) {
      return refuse(kind::insufficient,
                    fmt::format("needs {} GPUs of {}; {} are idle", share.gpus,
                                c.nodes[share.node].name, idle.idle(share.node)));
    }
  }
  return {};
}

}  // namespace troupe::planners
