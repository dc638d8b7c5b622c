#pragma once

#include <string>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"

namespace troupe::planners {

/// Figures that an estimate of a job on these GPUs rests on, and nobody has measured: a sentence
/// for each kind of node, which says what to measure. A node with one GPU of the job has no
/// all-reduces.
std::vector<std::string> guesses_of(const cluster& c, const job_spec& job, const allocation& where);

}  // namespace troupe::planners
