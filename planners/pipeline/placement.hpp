#pragma once

#include <optional>
#include <string>
#include <vector>

#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "messages/plan.hpp"
#include "messages/reason.hpp"
#include "planners/core/idle_index.hpp"
#include "planners/core/planning_budget.hpp"
#include "planners/core/policy.hpp"

// Jobs that are trained as pipelines, under every policy (docs/planners/datacenter_selection.md):
// Algorithm 1 places them; MARP makes the plans of all others.

namespace troupe::planners {

/// Does the job say `train`, `slots` or `pipeline`?
bool is_pipeline_job(const job_spec& job);
/// Whether it runs as pipelines of stages that are planned here: such a job, or simulated work that
/// no single stage can hold.
bool runs_as_pipelines(const job_spec& job, const std::vector<plan>* plans);

/// A plan and its GPUs, which satisfy fits(): datacenters in the pipeline's order,
/// tensor_parallel as the job says.
struct pipeline_placement {
  plan how;  // samples_per_s: global_batch / the time of an iteration
  allocation where;
};

/// The stages of a plan that says how many there are, and how the batch goes through them: cut as
/// split_model cuts the job's model for GPUs of `max_bytes`; each needs `headroom` more than the
/// memory model says, as a share.
std::vector<plan_stage> stages_of(const job_spec& job, const plan& how, double max_bytes,
                                  double headroom);

/// On those idle GPUs that the job may run on, by select_placement. `as_wished`: exactly the stages
/// and pipelines that the job asks for; else at most as many.
expected<pipeline_placement> place_pipelines(const cluster& c, const idle_index& idle,
                                             const job_spec& job, bool as_wished,
                                             planning_budget& budget);
inline expected<pipeline_placement> place_pipelines(const cluster& c, const idle_index& idle,
                                                    const job_spec& job, bool as_wished) {
  planning_budget budget;
  return place_pipelines(c, idle, job, as_wished, budget);
}

/// The plans of any job on the whole cluster, best first: MARP's; of a pipeline job the one that it
/// wishes for, or if the cluster is too small for that, the best with fewer GPUs. Refuses what no
/// GPUs of this cluster can run within the job's bounds and limits (bounds.hpp).
expected<std::vector<plan>> plans_for(const cluster& c, const job_spec& job,
                                      planning_budget& budget);
inline expected<std::vector<plan>> plans_for(const cluster& c, const job_spec& job) {
  planning_budget budget;
  return plans_for(c, job, budget);
}

/// A sentence if the job's bounds (max_gpus, required_gpu_type) cost it its best plan, of which
/// `plans` are those within the bounds; else empty.
std::string bound_warning(const cluster& c, const job_spec& job, const std::vector<plan>& plans);

/// What policies begin with that have no better way to place trainings: they are placed first, in
/// the queue's order, by Algorithm 1, and run to their end. One that asks for stages and pipelines
/// waits for them, and takes fewer only when the GPUs that are there could never suffice; one that
/// leaves them open waits for GPUs that reach half of the speed that it would have on all. A job's
/// first attempt gives nodes `lease_s` to appear. Appends to `out`; gives the snapshot less the
/// GPUs that they take, which `room` holds.
snapshot start_trainings(const snapshot& s, std::vector<decision>& out,
                         std::optional<idle_index>& room);
/// Why a training waits under such a policy.
reason why_training_waits(const snapshot& s, const job_view& j);

}  // namespace troupe::planners
