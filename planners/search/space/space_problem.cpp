#include "planners/search/space/space_problem.hpp"

namespace troupe::planners {

std::uint32_t gpus_of(const space_problem& p, const space_plan& plan) {
  std::uint32_t n = 0;
  for (const auto& g : plan.groups)
    for (const auto& s : g.seats) n += g.pipelines * p.classes[s.cls].tensor;
  return n;
}

double score_of(const space_problem& p, const space_value& v, std::uint32_t gpus) {
  constexpr double never = std::numeric_limits<double>::infinity();
  if (!(v.seconds < never)) return never;
  if (p.max_s && v.seconds > *p.max_s * (1 + 1e-12)) return never;
  if (p.max_dollars && v.dollars > *p.max_dollars * (1 + 1e-12)) return never;
  if (p.max_gpus && gpus > *p.max_gpus) return never;
  if (p.goal == space_goal::fastest) return v.seconds;
  return p.goal == space_goal::cheapest ? v.dollars : v.seconds * gpus;
}

}  // namespace troupe::planners
