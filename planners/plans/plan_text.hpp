#pragma once

#include <string>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"

namespace troupe::planners {

// Words for plans in reports and explanations.

/// A plan's split, for people: "data 2 x tensor 4", or "data 2 x 3 stages".
std::string split_text(const plan& how);

/// "8 pipelines in north, 4 micro-batches each: A100-40GB x 4". Where a group's stages are in
/// several datacenters, each stage names its own.
std::string group_sentence(const cluster& c, const group_view& g);

/// A sentence for each group of a plan; empty: all pipelines are alike.
std::vector<std::string> group_sentences(const cluster& c, const plan& how);

/// A stage's part of the model, for people: "3.5 layers", "12 operators".
std::string size_text(const model& m, const plan_stage& stage);

}  // namespace troupe::planners
