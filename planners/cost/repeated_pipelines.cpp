#include "planners/cost/repeated_pipelines.hpp"

#include <algorithm>
#include <numeric>

namespace troupe::planners {

namespace {

/// Whether a node's GPUs are like another one's to all that computes or sends there.
bool are_alike(const cluster& c, const node_share& a, const node_share& b) {
  const auto &x = c.nodes[a.node], &y = c.nodes[b.node];
  return a.gpus == b.gpus && x.gpu == y.gpu && x.datacenter == y.datacenter && x.intra == y.intra &&
         x.inter == y.inter && x.emulate_speed == y.emulate_speed;
}

}  // namespace

std::uint32_t repeated_pipelines(const cluster& c, const job_spec& job, const plan& how,
                                 const allocation& where) {
  if (where.empty() || how.stages.empty() || job.slots) return 0;
  const auto width = how.stages.front().tensor_parallel, node_gpus = where.front().gpus;
  if (width == 0 || node_gpus % width != 0) return 0;
  const auto gpus = width * how.pipeline_parallel;
  const auto full = std::lcm(gpus, node_gpus) / gpus;
  if (how.data_parallel < 4 * full || how.data_parallel % full != 0) return 0;
  if (where.size() * node_gpus != how.gpus()) return 0;
  const bool even = std::ranges::all_of(how.stages, [&](const plan_stage& s) {
    return s.tensor_parallel == width && s.gpu == how.stages.front().gpu;
  });
  const bool alike = std::ranges::all_of(
      where, [&](const node_share& n) { return are_alike(c, n, where.front()); });
  return even && alike ? 2 * full : 0;
}

}  // namespace troupe::planners
