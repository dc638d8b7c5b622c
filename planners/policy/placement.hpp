#pragma once

#include <optional>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/decision.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/plans/fits.hpp"
#include "planners/plans/user_request.hpp"
#include "planners/search/space/plan_space.hpp"

// Jobs that are trained as pipelines, under every policy (docs/planners/datacenter_selection.md):
// Algorithm 1 places them; MARP makes the plans of all others.

namespace troupe::planners {

/// Does it run as pipelines of planned stages? Such a job does, and simulated work that no single
/// stage can hold.
bool runs_as_pipelines(const job_spec& job, const std::vector<plan>* plans);

/// The cluster for a job that needs `memory_factor` times the memory that was predicted.
cluster with_more_headroom(cluster c, double memory_factor);

/// The stages of a plan with a given number of stages and batch split: cut by split_model for GPUs
/// of this type, with `max_bytes`; each needs `headroom` (a fraction) more than the memory model
/// predicts.
std::vector<plan_stage> stages_of(const job_spec& job, const plan& how, double max_bytes,
                                  double headroom, const gpu_type& gpu = {});

/// Memory per GPU of such a plan by MARP's formula, for comparison; none: the plan has that
/// already.
std::optional<double> bytes_by_marp(const cluster& c, const job_spec& job, const plan& how);

/// The job with which to plan another attempt after one with micro-batches of `rows` samples (0:
/// there was none): with the same micro-batch size, unless the job sets it.
job_spec with_rows(job_spec job, std::uint32_t rows);

/// Places the job on idle GPUs that it may use: the groups of pipelines that its user chose, else
/// by select_placement (ATLAS, Algorithm 1). The result satisfies fits(); its datacenters are in
/// the pipeline's order, tensor_parallel is the job's, and samples_per_s is global_batch over the
/// time of an iteration. `as_wished`: with exactly the stages and pipelines that the job requests;
/// otherwise with at most as many.
expected<placed_plan> place_pipelines(const cluster& c, const idle_index& idle, const job_spec& job,
                                      bool as_wished, planning_budget& budget);
inline expected<placed_plan> place_pipelines(const cluster& c, const idle_index& idle,
                                             const job_spec& job, bool as_wished) {
  planning_budget budget;
  return place_pipelines(c, idle, job, as_wished, budget);
}

/// The same, or the pipelines that a search of `space` finds if these are faster, where the search
/// can place the training and its objective is `fastest`. Null: no search.
expected<placed_plan> place_training(const cluster& c, const idle_index& idle, const job_spec& job,
                                     bool as_wished, const plan_space* space,
                                     planning_budget& budget);

/// The plans of any job on the whole cluster, best first: MARP's; of a program with exact_gpus
/// exact_plans' (plans/exact_gpus.hpp); of a pipeline job the requested one, or the best with fewer
/// GPUs if the cluster is too small. Fails if no GPUs of this cluster can run it within the job's
/// limits (bounds.hpp). `space`: as for place_training.
expected<std::vector<plan>> plans_for(const cluster& c, const job_spec& job,
                                      planning_budget& budget, const plan_space* space = nullptr);
inline expected<std::vector<plan>> plans_for(const cluster& c, const job_spec& job) {
  planning_budget budget;
  return plans_for(c, job, budget);
}

/// For policies without their own placement of trainings: these are placed first, in queue order,
/// by Algorithm 1, and run to their end. A training that requests stages and pipelines waits for
/// them, and takes fewer only if the present GPUs could never suffice; one that does not waits for
/// GPUs that give half of the speed that it would have on all. A job's first attempt gives nodes
/// `lease_s` to appear. Appends to `out`; returns the snapshot without the GPUs that they take,
/// stored in `room`. `space`: as for place_training.
snapshot start_trainings(const snapshot& s, std::vector<decision>& out,
                         std::optional<idle_index>& room, planning_budget& budget,
                         const plan_space* space = nullptr);
inline snapshot start_trainings(const snapshot& s, std::vector<decision>& out,
                                std::optional<idle_index>& room) {
  planning_budget budget{planning_budget::units_a_decision};
  return start_trainings(s, out, room, budget);
}
/// Why a training waits under such a policy.
reason why_training_waits(const snapshot& s, const job_view& j);

}  // namespace troupe::planners
