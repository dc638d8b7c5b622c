#include "planners/core/shortage.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace troupe::planners {

std::string idle_text(const snapshot& s, const plan& how) {
  constexpr std::size_t shown = 4;  // nodes
  std::uint32_t idle = 0;
  for (const auto g : how.gpu_types) idle += s.idle.idle_of(g);
  auto text = fmt::format("{} {} idle", idle, idle == 1 ? "is" : "are");
  std::size_t nodes = 0, gpus_of_others = 0;
  for (const auto& out : s.unusable) {
    const auto& n = s.cluster.nodes[out.node];
    if (n.gpus == 0 || std::ranges::find(how.gpu_types, n.gpu) == how.gpu_types.end()) continue;
    if (++nodes <= shown)
      text += fmt::format(", {} on {}, which is {}", n.gpus, n.name, out.state);
    else
      gpus_of_others += n.gpus;
  }
  if (nodes > shown)
    text += fmt::format(", {} on {} more nodes that cannot be used", gpus_of_others, nodes - shown);
  return text;
}

}  // namespace troupe::planners
