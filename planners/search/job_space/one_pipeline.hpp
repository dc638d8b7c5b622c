#pragma once

#include <vector>

#include "planners/cost/plan_time.hpp"

namespace troupe::planners {

/// Terms (1) and (2) of docs/planners/plan_search.md. `hop_s`: a send on the hop after a stage, on
/// an idle link; `wan_s`: the time of the WAN that it uses.
double one_pipeline_s(const std::vector<step_costs>& steps, const std::vector<double>& hop_s,
                      const std::vector<double>& wan_s, double microbatches);

}  // namespace troupe::planners
