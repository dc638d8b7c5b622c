#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/gpu_pools.hpp"
#include "planners/cluster/snapshot.hpp"
#include "planners/policy/policy.hpp"

// Sia (Jayaram Subramanya et al., SOSP 2023) as a baseline: docs/planners/baselines.md. A round has
// three pure steps: build the integer program, solve it, place the counts on nodes.

namespace troupe::planners {

/// The authors' published defaults, but for the solver's limits.
struct sia_options {
  double fairness_power = -0.5;  // p: a configuration costs goodput^p
  double unassigned = 1.1;       // lambda_n: cost of a job without GPUs
  double change = 0.01;          // lambda_a: added for a running job that changes
  double min_restart_factor = 0.02;
  std::uint32_t max_waiting = 256;  // jobs from the front of the queue that enter the program
  double gap = 5e-4;   // relative to the total cost: optimality gap at which the solver may stop
  int max_nodes = 50;  // branch-and-bound limit, so that it never depends on time
};

std::unique_ptr<policy> make_sia(const sia_options& options);

/// A number of GPUs of a pool: within a node, or whole nodes.
struct sia_choice {
  std::uint32_t pool = 0;
  plan how;
  double cost = 0;
};

/// Jobs that are equal to the program: same shape, present configuration and restart factor. They
/// share one set of columns, and the result is a number of jobs for each choice.
struct sia_group {
  std::vector<const job_view*> jobs;  // in order of arrival
  bool running = false;
  std::vector<sia_choice> choices;
  std::size_t present = none;  // running jobs: their choice, if it is still valid

  static constexpr std::size_t none = ~std::size_t{0};
};

/// A job that no pool can hold, on GPUs of several.
struct sia_mixed {
  const job_view* job = nullptr;
  plan how;
  allocation where;  // empty: it waits
};

struct sia_problem {
  std::vector<gpu_pool> pools;  // capacity: of `room`
  std::vector<sia_group> groups;
  free_gpus room;                // idle, or held by a running program, and not granted beside this
  std::vector<sia_mixed> mixed;  // in no group: those that run, where they are, then the queue
  std::vector<const job_view*> hopeless;  // no configuration of this cluster can hold them
};

struct sia_answer {
  std::vector<std::vector<std::uint32_t>> taken;  // [group][choice]: jobs
  double cost = 0;                                // all jobs', including those without GPUs
  std::optional<reason> unsolved{};               // the solver refused the program: none is taken
};

/// `granted`: jobs whose GPUs are not to be assigned.
sia_problem make_sia_problem(const snapshot& s, const sia_options& options = {},
                             std::span<const sia_mixed> granted = {});

/// Finds GPUs of several pools in the problem's room, rather idle ones, for one of the job's plans.
bool place_mixed(const snapshot& s, const sia_problem& problem, sia_mixed& job);

/// Solved by CBC: the LP relaxation, and branch and bound if that is not integral. Deterministic.
sia_answer solve_sia(const sia_problem& problem, const sia_options& options = {});

/// A round: the program, and the jobs of several pools with which its total cost is smaller than
/// without them: of those that run each, of those that wait the first that finds room.
struct sia_round {
  sia_problem problem;
  sia_answer answer;
  std::vector<sia_mixed> granted;
};
sia_round solve_sia_round(const snapshot& s, sia_problem problem, const sia_options& options = {});

/// Would the result certainly be that nothing changes? A cheap sufficient test.
bool nothing_to_gain(const sia_problem& problem);

/// Does a running job stay where it is, outside of the program? One does that cannot be resumed.
bool keeps_gpus(const job_view& j);

}  // namespace troupe::planners
