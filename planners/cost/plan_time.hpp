#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "messages/plan.hpp"
#include "messages/reason.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/pipeline/evaluate_schedule.hpp"
#include "planners/pipeline/layout.hpp"
#include "planners/pipeline/schedule.hpp"

// How long an iteration of a plan takes on the GPUs that it was given: what policies rank by, what
// people are shown, and what the trainer expects (docs/planners/cost_model.md). A plan without
// stages is a program's, of which the cost model knows the model and the split; one with stages is
// the built-in trainer's, whose schedule is known.

namespace troupe::planners {

/// A plan's stages where they lie, and what each step of theirs takes.
struct timed_plan {
  pipeline_layout layout;
  batch_split batch;
  std::vector<stage_costs> costs;  // pipeline * stages + stage
  pipeline_shape shape;            // of the slowest peers, updates and sums included
  measured_times times;            // of every stage by itself
};

/// Of a plan with stages. Refuses one that its GPUs or the job's batch contradict.
expected<timed_plan> time_plan(const cluster& c, const job_spec& job, const plan& how,
                               const std::vector<lease_part>& parts);
expected<timed_plan> time_plan(const cluster& c, const job_spec& job, const plan& how,
                               const allocation& where);

/// Each stage's steps as its slowest or its fastest peer takes them; empty if some are not known.
std::vector<step_costs> slowest_peers(const pipeline_shape& shape, const measured_times& times);
std::vector<step_costs> fastest_peers(const pipeline_shape& shape, const measured_times& times);
/// The longest update and exchange of each stage's peers.
std::vector<double> longest_tails(const pipeline_shape& shape, const measured_times& times);

enum class fidelity : std::uint8_t {
  /// 1F1B's by the slowest of its stages, each with its wait for the first gradient; then what the
  /// backwards of earlier stages do not hide of sums and updates. No schedule is made.
  closed,
  /// The job's schedule is made and carried out, step by step: what the trainer expects.
  simulated
};

/// Of a plan with stages. Refuses a schedule that cannot be made.
expected<iteration_estimate> evaluate(const cluster& c, const job_spec& job,
                                      const timed_plan& timed, fidelity f);
/// Of any plan; without stages there is the closed form alone.
expected<iteration_estimate> evaluate(const cluster& c, const job_spec& job, const plan& how,
                                      const allocation& where, fidelity f);

/// The schedule that the job asks for, or `best`.
std::string schedule_name(const job_spec& job);

/// The job with what computes its stages named: as it says, else simulated devices for a study in
/// slots, else `device`.
job_spec with_device(job_spec job, const std::string& device);

}  // namespace troupe::planners
