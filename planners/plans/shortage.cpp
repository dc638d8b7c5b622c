#include "planners/plans/shortage.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "messages/base/folds.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/layout.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/exact_gpus.hpp"
#include "planners/plans/places.hpp"

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

namespace {

/// Whether the datacenters' idle GPUs hold all stages, with all pipelines of each in one of them.
bool has_room_for_stages(const cluster& c, const idle_index& idle, const job_spec& job,
                         const plan& how) {
  std::vector<std::uint32_t> groups(c.datacenters.size());
  for (node_index n = 0; n < c.nodes.size(); ++n)
    if (allows(job, c.gpu_of(n)))
      groups[c.nodes[n].datacenter] += idle.idle(n) / how.stages.front().tensor_parallel;
  const auto stages = static_cast<std::uint32_t>(how.stages.size());
  const auto parts =
      partition(groups, stages, how.data_parallel, job.pipeline.stages_per_datacenter);
  return sum_of(parts, [](std::uint32_t n) { return n; }) >= stages;
}

bool has_room_together(const cluster& c, const idle_index& idle, const job_spec& job,
                       const plan& how) {
  if (idle_for(c, idle, job, how) < how.gpus()) return false;
  return how.stages.empty() || how.stages.front().gpu || has_room_for_stages(c, idle, job, how);
}

}  // namespace

// A sum may suffice where no nodes have equal parts of it, or no datacenters that the job may be
// spread over.
bool has_room(const cluster& c, const idle_index& idle, const job_spec& job, const plan& how) {
  if (idle_for(c, idle, job, how) < how.gpus()) return false;
  if (facts_of(job).exact_gpus) return !place_exact(c, idle, job, how).empty();
  const job_places places{c, job, std::vector{how}};
  if (places.anywhere()) return has_room_together(c, idle, job, how);
  return std::ranges::any_of(places.groups(), [&](const datacenter_group& group) {
    return has_room_together(c, idle_in(c, idle, group), job, how);
  });
}

std::string scatter_text(const cluster& c, const idle_index& idle, const job_view& j,
                         const plan& how) {
  if (idle_for(c, idle, *j.spec, how) < how.gpus() || has_room(c, idle, *j.spec, how)) return {};
  const job_places places{c, *j.spec, j.plans ? *j.plans : std::vector<plan>{},
                          j.history.bytes_floor};
  const auto enough_in = [&](const datacenter_group& group) {
    return idle_for(c, idle_in(c, idle, group), *j.spec, how) >= how.gpus();
  };
  if (places.anywhere() || std::ranges::any_of(places.groups(), enough_in)) {
    if (!how.stages.empty()) return ", as its stages are spread over datacenters";
    return ", the same number on each node";
  }
  std::string counts;
  for (std::uint32_t d = 0; d < c.datacenters.size(); ++d) {
    datacenter_group alone(c.datacenters.size());
    alone[d] = true;
    if (const auto n = idle_for(c, idle_in(c, idle, alone), *j.spec, how); n > 0)
      counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", n, c.datacenters[d].name);
  }
  const bool one = std::ranges::all_of(places.groups(), [](const datacenter_group& group) {
    return std::ranges::count(group, true) == 1;
  });
  return fmt::format(", in {} (idle: {})", one ? "one datacenter" : "datacenters that are linked",
                     counts);
}

std::string waits_for_text(const snapshot& s, const job_view& j) {
  if (!j.facts().exact_gpus || !waits_for_nodes(s, j)) return {};
  return "; the nodes that can be used are not enough, so that it waits for others to come back, "
         "and no GPUs are kept for it meanwhile";
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
