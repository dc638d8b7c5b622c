#include "planners/search/job_space/one_pipeline.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace troupe::planners {

double one_pipeline_s(const std::vector<step_costs>& steps, const std::vector<double>& hop_s,
                      const std::vector<double>& wan_s, double microbatches) {
  double behind = 0, before = 0, longest = 0;
  for (std::size_t s = 1; s < steps.size(); ++s)
    behind += steps[s].forward + steps[s].backward + 2 * hop_s[s - 1];
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const auto& k = steps[s];
    const double window = std::min<double>(microbatches, static_cast<double>(steps.size() - s));
    const double way_s = k.forward + k.backward;
    const double idle = std::max(0.0, k.forward + behind - window * k.forward);
    const double step_s = k.forward + k.recompute + k.backward;
    longest = std::max(longest, before + microbatches * std::max(step_s, wan_s[s]) +
                                    std::max(0.0, idle - k.recompute));
    const auto rounds =
        rounds_of(static_cast<std::uint32_t>(microbatches), static_cast<std::uint32_t>(window));
    longest = std::max(longest, before + rounds.full * (way_s + behind) + rounds.rest * k.forward);
    if (s + 1 == steps.size()) break;
    before += way_s + 2 * hop_s[s];
    behind -= steps[s + 1].forward + steps[s + 1].backward + 2 * hop_s[s];
  }
  return longest;
}

}  // namespace troupe::planners
