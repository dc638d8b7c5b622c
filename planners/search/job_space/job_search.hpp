#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/plans/places.hpp"
#include "planners/search/job_space/cost_model_times.hpp"

namespace troupe::planners {

/// The search for a job's pipelines on a cluster's idle GPUs, in each group of datacenters that it
/// may have together. Keeps references to the cluster.
class job_search {
 public:
  /// `places`: where the job may be. Fails if it is no work that can be searched for
  /// (cost_model_times), or no idle GPU can have a stage of it. `timing`: as there.
  static expected<job_search> of(const cluster& c, const idle_index& idle, const job_spec& job,
                                 const job_places& places, const plan_space& space,
                                 const plan_timing& timing = {});

  struct found_plan {
    const cost_model_times* times = nullptr;
    valued_plan found;
  };
  struct result {
    std::vector<found_plan> plans;  // best first
    std::uint64_t cuts = 0, valued = 0;
    bool exact = true, complete = true;
  };
  result search(std::size_t wanted, planning_budget& budget) const;
  /// A lower bound of the score of every plan (space_bound.hpp). `best`: a score that is known.
  double bound(double best, planning_budget& budget) const;

 private:
  struct room {
    idle_index idle;
    std::unique_ptr<cost_model_times> times;
  };
  // Times refer to the idle GPUs beside them.
  std::vector<std::unique_ptr<room>> rooms_;
};

}  // namespace troupe::planners
