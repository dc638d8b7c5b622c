#pragma once

#include <memory>
#include <string>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/snapshot.hpp"
#include "planners/policy/estimate.hpp"

// Elastic programs, as policies see them: what their jobs permit, and what they are known to cost.
// Every function answers for other jobs, too: these may have any plan, at the estimated speed.

namespace troupe::planners {

/// May its next attempt have this plan on GPUs of this type? By the job's `elastic` and its first
/// attempt; the bounds of all jobs (plans/bounds.hpp) hold besides.
bool may_have(const job_view& j, const plan& how, const std::string& gpu_type);

/// Seconds from its GPUs to its first iteration: measured, else as its file says, else restart_s.
double start_of(const cluster& c, const job_view& j);
/// Seconds that a stop and a start cost it: start_of() and the time in which it saves.
double restart_of(const cluster& c, const job_view& j);

/// Is its speed measured, so that the rates below have it already?
bool has_measured_rate(const job_view& j);

/// Samples/s by the cost model on the GPUs of a known rate, packed tightly; 0: the cluster has none
/// of that type.
double estimated_rate(const cluster& c, const job_spec& job, const program_rate& of);

/// Its speeds on GPUs of a type: measured ones, else those of its file, else estimates times the
/// known relation of speed and estimate. Where the estimate of a type is a guess, the relation says
/// how wrong the guess is: it corrects other guesses, and no estimate that rests on measurements.
/// Holds what it needs of its arguments.
class program_speeds {
 public:
  program_speeds(const cluster& c, const job_view& j);

  /// Samples/s of a plan on GPUs of one type, where the cost model expects `estimated`.
  double rate_of(const plan& how, const std::string& gpu_type, double estimated) const;

 private:
  struct known_speed {
    program_rate rate;   // data_parallel is never 0
    double ratio = 1;    // its samples/s over the estimate
    bool guess = false;  // the estimate rests on one
  };

  void add(const cluster& c, const job_view& j, program_rate rate);
  double ratio_at(const std::string& gpu_type, std::uint32_t gpus) const;

  std::vector<known_speed> known_;    // measured ones first
  std::vector<std::string> guessed_;  // types of GPU
};

/// The plans that its next attempt may have, each for one type of GPU and with the speed that
/// program_speeds knows, in the order of `j.plans`. Of a job that is not an elastic program, or has
/// no plans: `j.plans` itself.
std::shared_ptr<const std::vector<plan>> plans_of_elastic(const cluster& c, const job_view& j);

/// The same GPUs in the layout that the program keeps, with its memory not predicted, if `how` has
/// another one: for policies that make plans by themselves.
plan in_its_layout(const job_view& j, plan how);

/// The job with its first attempt's number and type of GPUs as limits, where it keeps them. Of any
/// other job: `j.spec` itself.
std::shared_ptr<const job_spec> limits_of_elastic(const job_view& j);

/// estimate_start() by what is known of an elastic program's speed and start.
start_estimate estimate_start(const cluster& c, const job_view& j, const plan& how,
                              const allocation& where);

}  // namespace troupe::planners
