#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planners/cluster/snapshot.hpp"
#include "planners/plans/fits.hpp"
#include "planners/policy/adaptive_plan.hpp"
#include "planners/policy/policy.hpp"

namespace troupe::planners {

// The choices of Gandiva, Gavel and ElasticFlow as Crius' evaluation has them (docs/planners/
// baselines.md): these systems decide by the throughput of data parallelism, and know the counts of
// GPUs that their users chose.

/// Data-parallel plans of these counts on every pool that the job may use. Where a pool holds the
/// job at a count but only with its parallelism adapted, that plan; if no count of any pool holds
/// it, of twice the counts, and so on. Refuses what no pool can hold at all.
expected<std::vector<plan>> data_parallel_plans(const cluster& c, const job_spec& job,
                                                std::vector<std::uint32_t> counts);

/// A plan of a job on a pool whose nodes can hold it.
struct pool_option {
  std::uint32_t pool = 0;
  const plan* how = nullptr;
};
std::vector<pool_option> options_on(const std::vector<gpu_pool>& pools, const job_view& j);
/// The fewest GPUs of any of the job's plans that are no fewer than it asks for; else the most.
std::uint32_t requested(const job_view& j);

/// The number of GPUs that it asks for, by its fastest plan that finds room, and taken from `free`;
/// nothing: there is none. Precondition: it has plans.
std::optional<placed_plan> place_requested(const std::vector<gpu_pool>& pools, free_gpus& free,
                                           const job_view& j);
/// Seconds of an iteration on that number of GPUs, by the fastest plan. Precondition: it has plans.
double requested_iteration_s(const job_view& j);

/// The pool that holds all of an allocation; pools.size(): none.
std::uint32_t pool_of(const std::vector<gpu_pool>& pools, const allocation& where);

/// Has it plans, and can it be stopped and started elsewhere?
bool may_be_moved(const job_view& j);

/// The part that Gandiva, Gavel and ElasticFlow have in common: they choose among data-parallel
/// plans of a few counts of GPUs, of one pool each, and leave all pipelines to with_trainings.
class data_parallel_policy : public queue_policy {
 public:
  policy_traits traits() const final { return {.round_s = round_s(), .plans_by_request = true}; }
  bool places(const job_spec& job, bool pipelines) const final;
  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planning_budget& budget) const final;

 private:
  virtual double round_s() const { return 0; }
  /// The counts of GPUs to plan a job for, ascending.
  virtual std::vector<std::uint32_t> counts_for(const job_spec& job) const = 0;
  /// Why a job waits that has plans.
  virtual reason why_behind(const snapshot& s, const job_view& j) const = 0;

  reason why_waits(const snapshot& s, const job_view& j) const final;
};

}  // namespace troupe::planners
