#pragma once

#include "cli/output/output.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"

namespace troupe::cli {

/// A plan, as `troupe plan --json` shows it.
json plan_document(const cluster& c, const job_spec& job, const plan& p);

}  // namespace troupe::cli
