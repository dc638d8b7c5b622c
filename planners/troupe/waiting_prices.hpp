#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "planners/cluster/gpu_pools.hpp"
#include "planners/troupe/contender.hpp"

// The cost of time on GPUs for the other jobs (docs/planners/troupe.md, "The decision", rule 2).

namespace troupe::planners {

/// Weight of the GPUs that can be handed out, by pool. `speeds`: relative_speeds().
std::vector<double> pool_weights(const std::vector<double>& speeds,
                                 const std::vector<gpu_pool>& pools, const free_gpus& free);

/// Seconds that the jobs of a queue wait longer, together, for a second of a GPU of the fastest
/// type, by pool: 1 / G for each job, where G is the weight of the pools that the job can use, and
/// nothing in the other pools.
class waiting_prices {
 public:
  explicit waiting_prices(const std::vector<double>& pool_weights);

  /// 1 / G of the job; 0: it can use no GPU.
  double share_of(const contender& x) const;
  /// `share`: share_of() of the same job.
  void add(const contender& x, double share) { change(x, share); }
  void remove(const contender& x, double share) { change(x, -share); }
  double in(std::size_t pool) const;
  double highest() const;
  /// The lowest price of the pools that the job can use.
  double lowest(const contender& x) const;

 private:
  template <class F>
  void for_each_pool(const contender& x, F f) const;
  void change(const contender& x, double by);

  const std::vector<double>& weights_;
  std::vector<double> prices_;  // by pool
};

/// The cost of a decision for all jobs, in seconds.
class job_costs {
 public:
  /// `load`: see arriving_load.
  job_costs(const cluster& c, double total_weight, double load, const troupe_options& o);

  /// Factor on the waiting prices: more jobs arrive while those that are here wait.
  double price_factor() const { return o_.price_factor / (1 - load_); }
  /// Seconds that all jobs lose if one holds GPUs of this weight for so long: itself, those behind
  /// it by `price`, and those that arrive before it may be stopped for them.
  double of_run(double time_s, double weight, double price) const {
    const double held_s = std::min(time_s, o_.hold_restarts * restart_s_);
    return time_s * (1 + price * weight) + arriving_price_ * held_s * weight;
  }

 private:
  const troupe_options& o_;
  double restart_s_, load_, arriving_price_ = 0;
};

/// The loss of all jobs under an assignment, in seconds: the running ones until their ends, the
/// waiting ones behind these and behind one another, the least work first. Refers to its arguments;
/// `speeds`: relative_speeds().
class queue_losses {
 public:
  queue_losses(const cluster& c, const std::vector<contender>& contenders,
               const std::vector<double>& speeds, const std::vector<double>& pool_weights,
               const job_costs& costs);
  double of(const std::vector<assigned>& all) const;

 private:
  const cluster& c_;
  const std::vector<contender>& contenders_;
  const std::vector<double>&speeds_, &pool_weights_;
  const job_costs& costs_;
  std::vector<const contender*> by_work_;  // the least first
};

}  // namespace troupe::planners
