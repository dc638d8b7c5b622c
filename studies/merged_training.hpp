#pragma once

#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/job.hpp"

namespace troupe::studies {

/// The training that stands for these, which are fine-tuned on one frozen base with an adapter for
/// each (docs/planners/titan.md, "Unions"): in an iteration the stages compute the micro-batches of
/// one after those of the other, so that the pipeline fills and drains once. Refuses trainings of
/// different shapes, models or numbers of iterations.
expected<job_spec> merge_adapters(const std::vector<job_spec>& trainings);

}  // namespace troupe::studies
