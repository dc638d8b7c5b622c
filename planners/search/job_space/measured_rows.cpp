#include "planners/search/job_space/measured_rows.hpp"

#include <algorithm>

#include "planners/devices/profile.hpp"

namespace troupe::planners {

std::vector<std::uint32_t> measured_rows(const cluster& c, const job_spec& job,
                                         const std::vector<gpu_index>& gpus) {
  std::vector<std::uint32_t> rows;
  for (const auto g : gpus) {
    const auto* profile = profile_of(job, c.gpus[g]);
    if (!profile) continue;
    if (const auto sizes = sizes_of(*profile, job.model))
      for (const auto& p : (*sizes)->points) rows.push_back(p.rows);
    if (const auto layers = layers_of(*profile, job.model))
      for (const auto& p : (*layers)->points) rows.push_back(p.rows);
  }
  std::ranges::sort(rows);
  rows.erase(std::ranges::unique(rows).begin(), rows.end());
  return rows;
}

}  // namespace troupe::planners
