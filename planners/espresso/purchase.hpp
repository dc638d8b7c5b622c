#pragma once

#include <cstddef>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/espresso/provision.hpp"
#include "planners/plans/fits.hpp"

// The cost of one job's plans, and the cheapest of them so far: the part of Espresso's answer that
// does not depend on who proposes the plans.

namespace troupe::planners {

/// With prices of spot instances, where there are such.
cluster at_spot_prices(cluster c);

/// The cheapest plan of those that are offered. Keeps references to the cluster and the idle GPUs.
class purchase {
 public:
  /// `c`: with the prices that are to be paid.
  purchase(const cluster& c, const idle_index& idle, const job_spec& job,
           const provision_options& options);

  /// How many times as long a run takes on these GPUs because of interruptions: to first order, the
  /// expected number times what each loses (docs/planners/espresso.md, "Spot instances").
  double longer(const allocation& where) const;
  /// The least part of its closed form that a schedule takes: they are rarely shorter, since an
  /// iteration may begin while the last one's sums still run. 1 if none is simulated.
  double shortest() const { return options_.simulate ? 0.998 : 1; }
  /// Offers plans by their closed forms in seconds, cheapest first, until none can be cheaper than
  /// the best one. Returns how many times as long as its closed form a schedule is, at least, that
  /// is too long for a limit of time; 1: there is no such.
  struct candidate {
    placed_plan plan;
    double closed_form_s = 0;
  };
  double offer(std::vector<candidate> all, planning_budget& budget);
  /// Steepest descent: shifts the single piece, from one stage to any other, that makes the best
  /// plan cheapest, as long as one does. For plans of few stages whose schedules are simulated.
  void shift_pieces(planning_budget& budget);

  provision& best() { return best_; }

 private:
  double cost_of(const candidate& x, double iteration_s) const;
  double simulated_s(const placed_plan& p, planning_budget& budget);
  /// Makes it the best one if it is within the limits and cheaper. False: it is too slow.
  bool keep(const candidate& x, double iteration_s);
  job_spec job_of(const plan& how) const;

  const cluster& c_;
  const idle_index& idle_;
  job_spec job_;
  provision_options options_;
  provision best_;
};

}  // namespace troupe::planners
