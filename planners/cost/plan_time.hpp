#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/cost/layout.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/cost/timed_plan.hpp"
#include "planners/schedule/evaluate_schedule.hpp"
#include "planners/schedule/schedule.hpp"

// The time of an iteration of a plan on its allocation: what policies rank by, what users see, and
// what the trainer expects (docs/planners/cost_model.md). A plan without stages is a program's, of
// which only the model and the split are known; one with stages is the built-in trainer's, whose
// schedule is known.

namespace troupe::planners {

/// For a plan with stages. Fails if they do not match the GPUs or the job's batch.
expected<timed_plan> time_plan(const cluster& c, const job_spec& job, const plan& how,
                               const std::vector<lease_part>& parts);
expected<timed_plan> time_plan(const cluster& c, const job_spec& job, const plan& how,
                               const allocation& where);

/// The step times of each stage's slowest or fastest peer in a group, whose first pipeline is
/// `first`; empty if some are unknown (0).
std::vector<step_costs> slowest_peers(const pipeline_shape& shape, const measured_times& times,
                                      std::uint32_t first = 0);
std::vector<step_costs> fastest_peers(const pipeline_shape& shape, const measured_times& times,
                                      std::uint32_t first = 0);
/// The longest update and all-reduce among each stage's peers in the group.
std::vector<double> longest_tails(const pipeline_shape& shape, const measured_times& times,
                                  std::uint32_t first = 0);
/// A schedule for each group. Fails with the first that cannot be made.
expected<std::vector<pipeline_schedule>> schedules_of(const std::vector<pipeline_shape>& shapes,
                                                      std::string_view name);

enum class fidelity : std::uint8_t {
  /// Closed form of 1F1B, terms (1) and (2) of docs/planners/plan_search.md, plus the all-reduces
  /// and updates that backwards of earlier stages do not hide. Makes no schedule.
  closed,
  /// The closed form and longer chains of events, terms (3) to (5): trips to the last stage and
  /// back between steps of a stage, and tensors that pass each stage's own network card. Simulated
  /// schedules of 1F1B are not shorter, but for updates that the next iteration hides.
  lower_bound,
  /// Makes the job's schedule and simulates it step by step: what the trainer expects.
  simulated
};

/// For a plan with stages. Fails if the schedule cannot be made.
expected<iteration_estimate> evaluate(const cluster& c, const job_spec& job,
                                      const timed_plan& timed, fidelity f);
/// For any plan; without stages only the closed form exists.
expected<iteration_estimate> evaluate(const cluster& c, const job_spec& job, const plan& how,
                                      const allocation& where, fidelity f);

/// The job's schedule, or `best`.
std::string schedule_name(const job_spec& job);

/// The job with a device kind: sim for slot jobs, else its own, else `device`.
job_spec with_device(job_spec job, const std::string& device);

}  // namespace troupe::planners
