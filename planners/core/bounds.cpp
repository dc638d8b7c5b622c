#include "planners/core/bounds.hpp"

#include <utility>

#include <fmt/format.h>

namespace troupe::planners {

const idle_index& allowed_idle(const cluster& c, const idle_index& idle, const job_spec& job,
                               std::optional<idle_index>& restricted) {
  if (job.required_gpu_type.empty()) return idle;
  restricted.emplace(idle);
  for (node_index n = 0; n < c.nodes.size(); ++n)
    if (!allows(job, c.gpu_of(n))) restricted->set_idle(n, 0);
  return *restricted;
}

expected<void> within_bounds(const cluster& c, const job_spec& job, const allocation& where) {
  if (job.max_gpus && total_gpus(where) > *job.max_gpus)
    return refuse(reason::kind::invalid, fmt::format("uses {} GPUs; the job allows {} (gpus)",
                                                     total_gpus(where), *job.max_gpus));
  for (const auto& share : where)
    if (!allows(job, c.gpu_of(share.node)))
      return refuse(
          reason::kind::invalid,
          fmt::format("uses {} of {}; the job allows {} only (gpu_type)", c.gpu_of(share.node).name,
                      c.nodes[share.node].name, job.required_gpu_type));
  return {};
}

expected<void> within_limits(const job_spec& job, double run_s, double price) {
  for (const auto& [name, limit] : {std::pair{"slo_s", job.slo_s}, {"deadline_s", job.deadline_s}})
    if (limit && run_s > *limit)
      return refuse(reason::kind::infeasible,
                    fmt::format("no plan meets {} ({:g} s); the fastest takes {:.4g} s", name,
                                *limit, run_s));
  if (job.budget && price > *job.budget)
    return refuse(
        reason::kind::infeasible,
        fmt::format("no plan stays within the budget of {:g}; the cheapest{} costs {:.4g}",
                    *job.budget, job.slo_s || job.deadline_s ? " that is fast enough" : "", price));
  return {};
}

}  // namespace troupe::planners
