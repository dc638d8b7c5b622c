#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cost/timed_plan.hpp"

// The cost of a run: its GPUs while it runs, and the tensors that it sends between datacenters, in
// bytes as gateways count them (docs/planners/cost_model.md, "What a run costs").

namespace troupe::planners {

/// An iteration's bytes by the sending and the receiving datacenter, without pairs that exchange
/// nothing.
using datacenter_traffic = std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t>;

/// The time of an iteration, by component. For pipelines, compute_s has the slowest stage's steps
/// with their all-reduces.
struct iteration_estimate {
  double compute_s = 0;    // forward, backward, update
  double tensor_s = 0;     // tensor-parallel all-reduces of a program
  double data_s = 0;       // the part of a program's gradient all-reduce that is not hidden
  double pipeline_s = 0;   // everything else of a pipeline: waits, transfers, updates
  double iteration_s = 0;  // the sum
  double samples_per_s = 0;
  double cost_per_hour = 0;  // of the GPUs it uses
  datacenter_traffic traffic{};
  double traffic_per_iteration = 0;  // its price
};

/// Tensors that a pipeline's stages send each other in an iteration.
struct pipeline_tensors {
  std::uint64_t microbatches = 0;
  std::span<const std::uint64_t> activation_bytes;  // by stage, to the next one
  std::uint64_t tied_bytes = 0;                     // of an embedding that two stages have
  std::uint32_t parts = 1;                          // of the model in each stage
};

/// Adds the tensors of pipelines whose stages are in these datacenters.
void add_pipelines(datacenter_traffic& to, std::span<const std::uint32_t> datacenters,
                   const pipeline_tensors& of, std::uint64_t pipelines = 1);

/// Do the job's stages agree on each update (planners/schedule/evaluate_schedule.hpp, commit_ways)?
/// Those of the built-in trainer do, except in slots.
bool agrees_on_updates(const job_spec& job);

/// Adds with what the stages of pipeline 0, in these datacenters, agree on an update.
void add_agreement(datacenter_traffic& to, std::span<const std::uint32_t> datacenters);

/// A plan with stages sends activations and their gradients and tied embeddings of each pipeline,
/// with what all of them agree on updates, and the running sums of peers in several datacenters.
/// Empty for slot jobs.
datacenter_traffic traffic_of(const job_spec& job, const timed_plan& timed);

/// The price of that traffic; 0 where the links have none.
double price_of(const cluster& c, const datacenter_traffic& traffic);

/// The one formula for the cost of a run. `cost_per_hour`: of its GPUs; `traffic`: the price of an
/// iteration's.
inline double cost_of_run(double iterations, double iteration_s, double cost_per_hour,
                          double traffic) {
  return iterations * iteration_s * cost_per_hour / 3600 + iterations * traffic;
}
/// For all iterations of a job, or for that number of them, by the plan's figures.
double cost_of_run(const job_spec& job, const plan& how);
double cost_of_run(const job_spec& job, const plan& how, double iterations);
/// The same of one iteration.
double cost_of_iteration(const iteration_estimate& e);

/// The score by which plans are ranked, smaller is better, by the job's objective: seconds of an
/// iteration (fastest), times GPUs (efficient), or its cost, times 3600 (cheapest).
double plan_score(const job_spec& job, const plan& how);

/// The figures of a plan on its GPUs; a plan without traffic to pay for says none.
void set_figures(plan& how, const iteration_estimate& e);
inline void set_traffic(plan& how, double price) {
  how.traffic_per_iteration = price > 0 ? std::optional{price} : std::nullopt;
}

}  // namespace troupe::planners
