#pragma once

#include <string>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"

// Estimates that rest on a figure which nobody has measured, so that whoever reads them knows
// (docs/planners/cost_model.md, "GPU types"). Each is a sentence without a full stop.

namespace troupe::planners {

/// Is it a guess what the cost model says of a job on this type, so that a measured time corrects
/// the type's figures and not what is known of the job?
bool is_estimated_by_guess(const job_spec& job, const gpu_type& gpu);

/// Is the speed that the cost model gives the job on this type a guess? Not if it was measured, for
/// this job (its rates, if it is an elastic program) or by a profile, nor if whole trainings'
/// efficiencies were (kernel_us 0).
bool rests_on_guess(const job_spec& job, const gpu_type& gpu);

/// One for each type of `types`, which may repeat, whose speed is a guess, and one for each kind of
/// node of `where` whose all-reduces are: a node with one GPU of the job has none.
std::vector<std::string> guesses_of(const cluster& c, const job_spec& job,
                                    const std::vector<gpu_index>& types, const allocation& where);

/// The same for plans whose order rests on their speeds: of their types, and of the nodes on which
/// plans of several GPUs may run, besides `where`.
std::vector<std::string> guesses_of(const cluster& c, const job_spec& job,
                                    const std::vector<plan>& plans, const allocation& where);

/// For a job that has these GPUs.
std::vector<std::string> guesses_of(const cluster& c, const job_spec& job, const allocation& where);

}  // namespace troupe::planners
