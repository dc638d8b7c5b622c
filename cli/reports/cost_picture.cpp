#include "cli/reports/cost_picture.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "cli/common/output.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/plan_text.hpp"
#include "web/report/report_page.hpp"

namespace troupe::cli {

// By type, in the cluster file's order, whatever nodes they are on.
std::string gpus_text(const cluster& c, const allocation& where) {
  std::vector<std::uint32_t> used(c.gpus.size());
  for (const auto& share : where) used[c.nodes[share.node].gpu] += share.gpus;
  std::string text;
  for (gpu_index g = 0; g < used.size(); ++g)
    if (used[g] > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", used[g], c.gpus[g].name);
  return text;
}

std::string cost_picture(const cluster& c, const job_spec& job,
                         const planners::pareto_front& front) {
  json plans = json::array();
  for (const auto& p : front.plans)
    plans.push_back({{"cost", p.cost},
                     {"total_s", p.total_s},
                     {"iteration_s", p.iteration_s},
                     {"gpus", gpus_text(c, p.plan->where)},
                     {"split", planners::split_text(p.plan->how)},
                     {"meets", planners::within_limits(job, p.total_s, p.cost).has_value()}});
  // The stricter of both limits.
  const bool timed = job.slo_s || job.deadline_s;
  const double time_s = std::min(job.slo_s.value_or(1e300), job.deadline_s.value_or(1e300));
  return web::report_page({{"kind", "cost"},
                           {"job", job.name},
                           {"cluster", c.name},
                           {"iterations", job.iterations},
                           {"limits",
                            {{"time_s", timed ? json(time_s) : json()},
                             {"cost", job.budget ? json(*job.budget) : json()}}},
                           {"plans", std::move(plans)}});
}

}  // namespace troupe::cli
