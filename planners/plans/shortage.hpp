#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/snapshot.hpp"

// The GPUs that a waiting job lacks, and why, for `troupe explain` and `why_waiting`. Counts are
// GPUs.

namespace troupe::planners {

/// The condition other than a sum that the job's GPUs have to meet and these do not, for the middle
/// of a sentence:
/// ", the same number on each node", or ", in one datacenter: east has 2 idle and west 2". Empty:
/// the sum is too small.
std::string scatter_text(const cluster& c, const idle_index& idle, const job_view& j,
                         const plan& how);

/// "; it waits for these nodes: ..." of a program that the nodes which can be used could not serve.
std::string waits_for_text(const snapshot& s, const job_view& j);

/// How many GPUs of the plan's types are idle, and how many are of nodes that cannot be used: "2
/// are idle, 2 on r2, which is absent".
std::string idle_text(const snapshot& s, const plan& how);

/// The idle GPUs that the job could have for this plan: of the plan's types that the job may use
/// and that have the memory, of no type more than its quota.
std::uint32_t idle_for(const cluster& c, const idle_index& idle, const job_spec& job,
                       const plan& how);

/// Whether these suffice; for a program with an exact number, whether they can be placed; for
/// pipelines, whether each datacenter has what its stages need.
bool has_room(const cluster& c, const idle_index& idle, const job_spec& job, const plan& how);

/// How many GPUs of the plans' types are of nodes that cannot be used, for the end of a sentence:
/// "; 2 GPUs that it could have are on r2, which is absent". Empty: none are.
std::string unusable_text(const snapshot& s, const std::vector<plan>& plans);

}  // namespace troupe::planners
