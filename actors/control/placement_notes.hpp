#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "messages/plan.hpp"

namespace troupe::actors {

/// What a job's plan and nodes were chosen from: GPUs that were idle then, by node, those of absent
/// nodes not among them.
struct placement_note {
  std::vector<std::uint32_t> idle;
  std::vector<bool> present;
};

/// Sentences: why these nodes, and of each other node why not. `has_rule`: they were found by HAS,
/// whose rule of ties decides; else only what rules a node out is known.
std::vector<std::string> explain_nodes(const cluster& c, const job_spec& job, const plan& how,
                                       const allocation& where, const placement_note& then,
                                       bool has_rule);

/// What plans are ranked by under the job's objective, larger is better; and its name.
double metric_of(const job_spec& job, const plan& p);
std::string_view metric_name(const job_spec& job);

}  // namespace troupe::actors
