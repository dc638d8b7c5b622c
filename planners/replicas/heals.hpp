#pragma once

#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"

namespace troupe::planners {

/// May a training go on without stages that are lost, where a peer has their state? Not yet one
/// whose devices sum gradients in a group, nor one whose stages lend their bubbles.
inline bool heals(const job_spec& job) {
  const auto* t = job.train ? &*job.train : nullptr;
  return t && t->on_loss.value_or("heal") == "heal" && !job.slots && !job.pipeline.bubbles &&
         !(t->program && t->program->gradients == "torch");
}

/// The same of one with this plan, by which its stages have peers or have none.
inline bool heals(const job_spec& job, const plan& how) {
  return heals(job) && how.data_parallel > 1;
}

}  // namespace troupe::planners
