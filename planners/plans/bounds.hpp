#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/gpu_pools.hpp"
#include "planners/cluster/idle_index.hpp"

// Limits on GPUs are checked by planners while they search, and by the orchestrator when it
// commits; limits of time (seconds) and cost (the cluster file's unit of price) when plans are
// made.
//
// Limits that a job file sets, under every policy: how many GPUs (max_gpus; of a program with
// exact_gpus, gpus; of an elastic one, at least elastic.min_gpus) of which type (required_gpu_type,
// elastic.types), how long the work may take (slo_s,
// deadline_s) and what it may cost (budget).

namespace troupe::planners {

/// Whether the job may run on GPUs of this type.
inline bool allows(const job_spec& job, const gpu_type& gpu) {
  if (!job.limits.required_gpu_type.empty() && job.limits.required_gpu_type != gpu.name)
    return false;
  const bool any = !job.program.elastic || job.program.elastic->types.empty();
  return any || std::ranges::find(job.program.elastic->types, gpu.name) !=
                    job.program.elastic->types.end();
}

/// Whether it may run on any type.
inline bool allows_all_types(const job_spec& job) {
  return job.limits.required_gpu_type.empty() &&
         (!job.program.elastic || job.program.elastic->types.empty());
}

/// "A100" or "A100, T4": the types that a job names; empty: it may run on any. The key of a job
/// file that they are from.
std::string allowed_types(const job_spec& job);
std::string_view types_key(const job_spec& job);

/// How many GPUs of a type the job may have, were there as many; 0: it may not run on it.
std::uint32_t max_of_type(const cluster& c, const job_spec& job, gpu_index g);

/// The same plans for policies that place a job on GPUs of one type: each plan once for each of its
/// types of which the job may have all the GPUs. Refuses if there is none, or with the error given.
expected<std::vector<plan>> plans_of_one_type(const cluster& c, const job_spec& job,
                                              const expected<std::vector<plan>>& plans);

/// Whether a pool has room for the job's plan if all of its GPUs are idle, by the rules of
/// free_gpus.
bool holds(const gpu_pool& pool, const job_spec& job, const plan& how);

/// plans_of_one_type() without those that no pool of the cluster holds, for policies that place a
/// job in one pool.
expected<std::vector<plan>> plans_of_one_pool(const cluster& c, const job_spec& job,
                                              const expected<std::vector<plan>>& plans);

/// Why a policy that places a job on GPUs of one type has no plan.
tl::unexpected<reason> no_single_type(const job_spec& job);

/// The idle GPUs that the job may use, of no type more than its quota: `idle` itself, or
/// `restricted`, which is then filled.
const idle_index& allowed_idle(const cluster& c, const idle_index& idle, const job_spec& job,
                               std::optional<idle_index>& restricted);

/// The key of a job file that max_gpus is from.
std::string_view bound_key(const job_spec& job);

/// Rejects an allocation with more GPUs than max_gpus or a type's quota, or of another type than
/// allowed; of a program with exact_gpus, one with another number, or with unequal numbers of its
/// nodes; of an elastic one, one with fewer than its least.
expected<void> within_numbers(const cluster& c, const job_spec& job, const allocation& where);

/// Rejects, with the limit and the figure of the best plan, work that takes at least `run_s` and
/// costs at least `price` if that violates slo_s, deadline_s or budget.
expected<void> within_limits(const job_spec& job, double run_s, double price);

/// Whether all iterations of the job cost no more than its budget, by the figures of this plan. A
/// later attempt counts as if it did them all: with no dearer attempt before, their sum is within
/// the budget, too.
bool within_budget(const job_spec& job, const plan& how);

/// Removes the plans (or candidates) that violate a limit: first those that take too long, then
/// those that cost too much, by their `run_s(x)` in seconds and `price(x)`. Fails, with the figure
/// of the best one, if none of them is left after a step.
template <class candidate, class seconds, class cost>
expected<void> drop_beyond_limits(const job_spec& job, std::vector<candidate>& all, seconds run_s,
                                  cost price) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  double fastest_s = infinite, cheapest = infinite;
  for (const auto& x : all) fastest_s = std::min<double>(fastest_s, run_s(x));
  if (auto ok = within_limits(job, fastest_s, 0); !ok) return ok;
  std::erase_if(all, [&](const candidate& x) { return !within_limits(job, run_s(x), 0); });
  for (const auto& x : all) cheapest = std::min<double>(cheapest, price(x));
  if (auto ok = within_limits(job, 0, cheapest); !ok) return ok;
  std::erase_if(all, [&](const candidate& x) { return !within_limits(job, 0, price(x)); });
  return {};
}

}  // namespace troupe::planners
