#include "planners/core/shortage.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace troupe::planners {

namespace {

/// "2 on r2, which is absent", of each node with GPUs of these types that cannot be used.
std::vector<std::string> unusable_of(const snapshot& s, const std::vector<gpu_index>& types) {
  constexpr std::size_t shown = 4;  // nodes
  std::vector<std::string> out;
  std::size_t nodes = 0, gpus_of_others = 0;
  for (const auto& lost : s.unusable) {
    const auto& n = s.cluster.nodes[lost.node];
    if (n.gpus == 0 || std::ranges::find(types, n.gpu) == types.end()) continue;
    if (++nodes <= shown)
      out.push_back(fmt::format("{} on {}, which is {}", n.gpus, n.name, lost.state));
    else
      gpus_of_others += n.gpus;
  }
  if (nodes > shown)
    out.push_back(
        fmt::format("{} on {} more nodes that cannot be used", gpus_of_others, nodes - shown));
  return out;
}

}  // namespace

std::string idle_text(const snapshot& s, const plan& how) {
  std::uint32_t idle = 0;
  for (const auto g : how.gpu_types) idle += s.idle.idle_of(g);
  auto text = fmt::format("{} {} idle", idle, idle == 1 ? "is" : "are");
  for (const auto& lost : unusable_of(s, how.gpu_types)) text += ", " + lost;
  return text;
}

std::string unusable_text(const snapshot& s, const std::vector<plan>& plans) {
  std::vector<gpu_index> types;
  for (const auto& p : plans)
    for (const auto g : p.gpu_types)
      if (std::ranges::find(types, g) == types.end()) types.push_back(g);
  const auto lost = unusable_of(s, types);
  if (lost.empty()) return {};
  return fmt::format("; of the GPUs that it could have, {}", fmt::join(lost, ", "));
}

}  // namespace troupe::planners
