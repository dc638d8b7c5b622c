#include "planners/cost/repeated_pipelines.hpp"

#include <algorithm>
#include <numeric>

#include "messages/domain/work_kind.hpp"

namespace troupe::planners {

namespace {

/// Whether two shares of nodes are equal in everything that computes or sends.
bool are_alike(const cluster& c, const node_share& a, const node_share& b) {
  const auto &x = c.nodes[a.node], &y = c.nodes[b.node];
  return a.gpus == b.gpus && x.gpu == y.gpu && x.datacenter == y.datacenter && x.intra == y.intra &&
         x.inter == y.inter && x.emulate_speed == y.emulate_speed &&
         x.nvlink_domain == y.nvlink_domain;
}

}  // namespace

// Timing a plan costs O(pipelines * stages + links), and a data-parallel plan may have a thousand
// equal pipelines. If pipelines fill equal nodes without gaps, the layout repeats after `full`
// pipelines, lcm(GPUs per pipeline, GPUs per node) GPUs: every later pipeline has the same links
// and peers as one of the first block. Two blocks are timed, so that a stage has peers inside its
// node and on others, whose number is then scaled. Only worth it from four blocks on.
std::uint32_t repeated_pipelines(const cluster& c, const job_spec& job, const plan& how,
                                 const allocation& where) {
  if (where.empty() || how.stages.empty() || how.groups || !facts_of(job).has_model) return 0;
  const auto width = how.stages.front().tensor_parallel, node_gpus = where.front().gpus;
  if (width == 0 || node_gpus % width != 0) return 0;
  const auto gpus = width * how.pipeline_parallel;
  const auto full = std::lcm(gpus, node_gpus) / gpus;
  if (how.data_parallel < 4 * full || how.data_parallel % full != 0) return 0;
  if (where.size() * node_gpus != how.gpus()) return 0;
  // Peers inside an NVLink domain are reached otherwise than those beyond it.
  if (c.nodes[where.front().node].nvlink_domain) return 0;
  const bool even = std::ranges::all_of(how.stages, [&](const plan_stage& s) {
    return s.tensor_parallel == width && s.gpu == how.stages.front().gpu;
  });
  const bool alike = std::ranges::all_of(
      where, [&](const node_share& n) { return are_alike(c, n, where.front()); });
  return even && alike ? 2 * full : 0;
}

}  // namespace troupe::planners
