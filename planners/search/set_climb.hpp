#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/search/stage_placer.hpp"

namespace troupe::planners {

/// The measure by which sets of stages are compared.
struct set_wish {
  bool by_price = true;  // seconds of an iteration x dollars a second; else x GPUs
  double max_s = std::numeric_limits<double>::infinity();  // of an iteration
  std::optional<std::uint32_t> max_gpus{};
};

/// Sets of stages (stage_placer.hpp) with few types of GPUs, and from these on to others that cost
/// less, for pipelines that are alike and in one datacenter. Keeps what sets cost between calls,
/// and references to the cluster and the idle GPUs.
class set_climb {
 public:
  /// The plan of a set, if one takes no longer than a limit, s.
  using placing = std::function<set_plan(stage_placer&, std::size_t division,
                                         const stage_counts& counts, double limit_s)>;

  /// `idle`: of one datacenter. `f`: as stage_placer has it.
  set_climb(const cluster& c, const idle_index& idle, const job_spec& job, const set_wish& wish,
            placing place, fidelity f = fidelity::closed);

  struct found_set {
    std::size_t division = 0;
    stage_counts counts;
    set_plan placed;  // with a plan
    double cost = 0;  // of an iteration, by the wish
  };
  /// Sets of one type: of each type those that are cheaper than all before, and within the wish.
  std::vector<found_set> of_one_type(planning_budget& budget);
  /// A plan's own set, and those with one stage more, one less, or one of another type, as far as
  /// they are within the wish and below `cost`; again around the last one of them, as long as there
  /// is one. None: its division is none of these.
  std::vector<found_set> around(const plan& how, double cost, planning_budget& budget);

 private:
  double worth(const division& d, const stage_counts& counts) const;
  std::optional<found_set> look_at(std::size_t division, const stage_counts& counts, double below);
  bool spend(planning_budget& budget);

  stage_placer placer_;
  set_wish wish_;
  placing place_;
  std::uint64_t spent_ = 0;
};

/// The best order and cut of a set, by the closed form.
set_plan cut_best(stage_placer& placer, std::size_t division, const stage_counts& counts,
                  double limit_s);

}  // namespace troupe::planners
