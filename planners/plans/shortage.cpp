#include "planners/plans/shortage.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "messages/base/folds.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/exact_gpus.hpp"

namespace troupe::planners {

namespace {

/// "2 on r2, which is absent", for each node with GPUs of these types that cannot be used.
std::vector<std::string> unusable_of(const snapshot& s, const std::vector<gpu_index>& types) {
  constexpr std::size_t shown = 4;  // nodes; the rest are summed up, or the sentence has no end
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
  const auto idle = sum_of(how.gpu_types, [&](gpu_index g) { return s.idle.idle_of(g); });
  auto text = fmt::format("{} {} idle", idle, idle == 1 ? "is" : "are");
  for (const auto& lost : unusable_of(s, how.gpu_types)) text += ", " + lost;
  return text;
}

// A quota is per type, so that idle GPUs beyond it do not help the job.
std::uint32_t idle_for(const cluster& c, const idle_index& idle, const job_spec& job,
                       const plan& how) {
  std::uint32_t sum = 0;
  for (gpu_index g = 0; g < c.gpus.size(); ++g) {
    // A plan without types is for all that have the memory.
    if (!how.gpu_types.empty() && std::ranges::find(how.gpu_types, g) == how.gpu_types.end())
      continue;
    if (allows(job, c.gpus[g]) && c.gpus[g].memory_bytes() > how.bytes_per_gpu)
      sum += c.gpus[g].quota > 0 ? std::min(c.gpus[g].quota, idle.idle_of(g)) : idle.idle_of(g);
  }
  return sum;
}

// A sum may suffice where no nodes have equal parts of it.
bool has_room(const cluster& c, const idle_index& idle, const job_spec& job, const plan& how) {
  if (idle_for(c, idle, job, how) < how.gpus()) return false;
  return !has_exact_gpus(job) || !place_exact(c, idle, job, how).empty();
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
