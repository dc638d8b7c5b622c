#pragma once

#include <cstdint>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"

namespace troupe::planners {

/// Of a plan whose pipelines fill whole nodes of one kind, how many of the first ones stand for
/// all: they fill their nodes and as many again, so that each has peers on its own and on other
/// nodes. 0: the plan is not such a one, or has hardly more pipelines.
std::uint32_t repeated_pipelines(const cluster& c, const job_spec& job, const plan& how,
                                 const allocation& where);

}  // namespace troupe::planners
