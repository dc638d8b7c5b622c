#pragma once

#include <cstdint>
#include <vector>

#include "messages/cluster.hpp"
#include "messages/plan.hpp"
#include "planners/core/gpu_pools.hpp"
#include "planners/core/snapshot.hpp"

// Sia (Jayaram Subramanya et al., SOSP 2023) as a baseline: docs/planners/baselines.md. A round is
// three pure steps: write the integer program, solve it, place the counts on nodes.

namespace troupe::planners {

struct sia_options {
  double fairness_power = -0.5;  // p: a configuration costs goodput^p
  double unassigned = 1.1;       // lambda_n: what a job costs that gets nothing
  double change = 0.01;          // lambda_a: added for a running job that changes
  double min_restart_factor = 0.02;
  std::uint32_t max_waiting = 256;  // jobs of the queue, in order, that enter the program
  double gap = 5e-4;                // relative to all costs, at which the solver may stop
  int max_nodes = 50;               // of the branch and bound; it ends by count, never by time
};

/// A pool, and how many of its GPUs are idle or held by a running program.
struct sia_pool : gpu_pool {
  std::uint32_t capacity = 0;
};

/// So many GPUs of a pool: within a node, or whole nodes.
struct sia_choice {
  std::uint32_t pool = 0;
  plan how;
  double cost = 0;
};

/// Jobs that are alike to the program: one shape, one present configuration, one restart factor.
/// Their columns would be equal, so they share one set, and the answer is a number of jobs for each
/// choice.
struct sia_group {
  std::vector<const job_view*> jobs;  // in order of arrival
  bool running = false;
  std::vector<sia_choice> choices;
  std::size_t present = none;  // running: the choice that they have, if it is still one

  static constexpr std::size_t none = ~std::size_t{0};
};

struct sia_problem {
  std::vector<sia_pool> pools;
  std::vector<sia_group> groups;
  std::vector<const job_view*> hopeless;  // no configuration of this cluster could ever hold them
};

struct sia_answer {
  std::vector<std::vector<std::uint32_t>> taken;  // [group][choice]: jobs
  double cost = 0;                                // of all jobs, those without GPUs included
};

sia_problem make_sia_problem(const snapshot& s, const sia_options& options = {});

/// By CBC: its LP relaxation, and branch and bound where that is not whole. Deterministic.
sia_answer solve_sia(const sia_problem& problem, const sia_options& options = {});

/// Would the answer be that everything stays as it is? Cheap; true only when it is certain.
bool nothing_to_gain(const sia_problem& problem);

}  // namespace troupe::planners
