#pragma once

#include <string>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/espresso/pareto.hpp"

namespace troupe::cli {

/// A self-contained HTML page: what plans cost against how long they take, with the job's limits,
/// and a table of the plans.
std::string cost_picture(const cluster& c, const job_spec& job,
                         const planners::pareto_front& front);

/// "4 A30, 2 A4000": the GPUs of a plan.
std::string gpus_text(const cluster& c, const allocation& where);

}  // namespace troupe::cli
