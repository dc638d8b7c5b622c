#include "planners/policy/bound_warning.hpp"

#include <fmt/format.h>

#include "messages/domain/work_kind.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/places.hpp"

namespace troupe::planners {

std::string bound_warning(const cluster& c, const job_spec& job, const std::vector<plan>& plans,
                          const policy& by) {
  if (!facts_of(job).has_end) return {};  // any GPU that holds it will do
  if (auto notice = spread_notice(c, job, plans); !notice.empty()) return notice;
  if (facts_of(job).exact_gpus) return {};  // its user chose the number
  if (plans.empty() || (!job.limits.max_gpus && job.limits.required_gpu_type.empty())) return {};
  auto free = job;
  free.limits.max_gpus.reset();
  free.limits.required_gpu_type.clear();
  planning_budget budget;
  const auto best = by.plans_of(c, free, budget);
  if (!best || best->front() == plans.front()) return {};
  const auto& b = best->front();
  const auto& p = plans.front();
  return fmt::format(
      "bounded by {}{}{}: its best plan is {} GPU{} at {:.4g} samples/s; unbounded it would be {} "
      "GPU{} at {:.4g}",
      job.limits.max_gpus ? fmt::format("{}: {}", bound_key(job), *job.limits.max_gpus) : "",
      job.limits.max_gpus && !job.limits.required_gpu_type.empty() ? ", " : "",
      job.limits.required_gpu_type.empty() ? "" : "gpu_type: " + job.limits.required_gpu_type,
      p.gpus(), p.gpus() == 1 ? "" : "s", p.samples_per_s, b.gpus(), b.gpus() == 1 ? "" : "s",
      b.samples_per_s);
}

}  // namespace troupe::planners
