#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/plans/trace_duration.hpp"

namespace troupe::cli {

/// planners::reference_iteration_s, remembered: the 82,247 jobs of Philly are of some hundred
/// kinds, and each would be planned anew for its length, and again for every table. Refers to the
/// cluster.
class reference_times {
 public:
  explicit reference_times(const cluster& c) : c_{c} {}

  double operator()(const job_spec& job, std::uint32_t gpus) {
    // With a limit of time or cost it depends on the job's length, which few others have.
    if (job.limits.deadline_s || job.limits.budget || job.limits.slo_s)
      return planners::reference_iteration_s(c_, job, gpus);
    auto kind = job;
    kind.name.clear();
    kind.merging.dataset_card.clear();
    kind.iterations = 1;
    kind.priority = 0;
    kind.merging.allowed = true;
    auto& alike = known_[{kind.model.name, kind.request.type, kind.global_batch, gpus}];
    for (const auto& [other, seconds] : alike)
      if (other == kind) return seconds;
    const double seconds = planners::reference_iteration_s(c_, job, gpus);
    return alike.emplace_back(std::move(kind), seconds).second;
  }

 private:
  using key = std::tuple<std::string, std::string, std::uint32_t, std::uint32_t>;

  const cluster& c_;
  std::map<key, std::vector<std::pair<job_spec, double>>> known_;
};

}  // namespace troupe::cli
