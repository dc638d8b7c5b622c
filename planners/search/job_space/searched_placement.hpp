#pragma once

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/plans/fits.hpp"
#include "planners/search/space/plan_space.hpp"

// Trainings whose cut, shares and datacenters the search for pipelines finds, as it does for
// simulated work (docs/planners/plan_search.md).

namespace troupe::planners {

/// Whether it is a training that the search can place as its user wants it: with the objective
/// `fastest`, a model, and no cut, step times or number of stages in a datacenter that are given.
bool is_searched(const job_spec& job);

/// The fastest of the pipelines that the search finds on idle GPUs that the job may use, by the
/// simulated schedule. Numbers of stages, pipelines and micro-batches that the job gives are kept.
/// Fails if there are none, or none that fits(). Precondition: is_searched(job), without groups.
expected<placed_plan> place_by_search(const cluster& c, const idle_index& idle, const job_spec& job,
                                      const plan_space& space, planning_budget& budget);

/// The groups that the job names, where nodes of one type and datacenter differ in speed: the more
/// work a stage has, the faster is its node. Fails if they do not differ, or these GPUs cannot be
/// had. Precondition: the job names groups.
expected<placed_plan> place_by_load(const cluster& c, const idle_index& idle, const job_spec& job);

/// Whether an iteration of plan `a` takes less time than one of `b`, by the simulated schedule;
/// on very many GPUs by its closed form.
bool is_faster(const cluster& c, const job_spec& job, const placed_plan& a, const placed_plan& b);

}  // namespace troupe::planners
