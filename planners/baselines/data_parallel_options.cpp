#include "planners/baselines/data_parallel_options.hpp"

#include <algorithm>

#include "messages/domain/work_kind.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/places.hpp"
#include "planners/policy/placement.hpp"
#include "planners/policy/progress.hpp"

namespace troupe::planners {

// The user asks for a count without knowing every type's memory. Where no pool holds the job at any
// of the counts, the user is taken to have asked for twice as many, until some pool does or all are
// too small: else jobs that the paper's workloads contain could never run.
expected<std::vector<plan>> data_parallel_plans(const cluster& c, const job_spec& job,
                                                std::vector<std::uint32_t> counts) {
  const auto pools = pools_of(c, idle_index{c});
  std::uint32_t largest = 0;
  for (const auto& p : pools)
    largest = std::max(largest, static_cast<std::uint32_t>(p.nodes.size()) * p.node_gpus);
  if (job.max_gpus) {
    std::erase_if(counts, [&](auto n) { return n > *job.max_gpus; });
    if (counts.empty()) counts.push_back(*job.max_gpus);
  }
  std::vector<plan> out;
  while (out.empty() && !counts.empty()) {
    for (const auto& p : pools)
      for (const auto n : counts) {
        if (n > p.nodes.size() * p.node_gpus || n > max_of_type(c, job, p.gpu)) continue;
        auto how = data_parallel_plan(c, p, job, n);
        if (!how) how = adaptive_plan(c, p, job, n);
        if (how) out.push_back(std::move(*how));
      }
    for (auto& n : counts) n *= 2;
    std::erase_if(counts,
                  [&](auto n) { return n > largest || (job.max_gpus && n > *job.max_gpus); });
  }
  if (out.empty()) return no_single_type(job);
  std::ranges::stable_sort(out, std::greater{}, &plan::samples_per_s);
  return out;
}

std::vector<pool_option> options_on(const std::vector<gpu_pool>& pools, const job_view& j) {
  std::vector<pool_option> out;
  for (const auto& p : *j.plans)
    for (std::uint32_t i = 0; i < pools.size(); ++i)
      if (holds(pools[i], *j.spec, p)) out.push_back({i, &p});
  return out;
}

// A job may have no plan of the user's very count, because its memory or batch does not allow it.
std::uint32_t requested(const job_view& j) {
  std::uint32_t best = 0, max = 0;
  for (const auto& p : *j.plans) {
    max = std::max(max, p.gpus());
    if (p.gpus() >= j.spec->gpus && (best == 0 || p.gpus() < best)) best = p.gpus();
  }
  return best > 0 ? best : max;
}

std::optional<placed_plan> place_requested(const std::vector<gpu_pool>& pools, free_gpus& free,
                                           const job_view& j) {
  const auto wanted = requested(j);
  for (const auto& o : options_on(pools, j)) {
    if (o.how->gpus() != wanted || o.how->bytes_per_gpu <= j.history.bytes_floor) continue;
    const auto& pool = pools[o.pool];
    auto where = j.facts().exact_gpus ? find_for_program(free, pool, wanted, *j.spec)
                                      : free.find(pool, wanted, {});
    if (where.empty()) continue;
    free.take(where);
    return placed_plan{*o.how, std::move(where)};
  }
  return {};
}

double requested_iteration_s(const job_view& j) {
  const auto wanted = requested(j);
  double rate = 0;
  for (const auto& p : *j.plans)
    if (p.gpus() == wanted) rate = std::max(rate, p.samples_per_s);
  return j.spec->global_batch / rate;
}

std::uint32_t pool_of(const std::vector<gpu_pool>& pools, const allocation& where) {
  std::uint32_t p = 0;
  while (p < pools.size() && !pools[p].contains(where)) ++p;
  return p;
}

bool may_be_moved(const job_view& j) {
  return j.facts().resumable && has_plans(j);
}

bool data_parallel_policy::places(const job_spec& job, bool) const {
  return !facts_of(job).pipelines;
}

expected<std::vector<plan>> data_parallel_policy::plans_of(const cluster& c, const job_spec& job,
                                                           planning_budget& budget) const {
  if (!facts_of(job).brings_layout) return data_parallel_plans(c, job, counts_for(job));
  return plans_of_one_pool(c, job, policy::plans_of(c, job, budget));
}

reason data_parallel_policy::why_waits(const snapshot& s, const job_view& j) const {
  return has_plans(j) ? why_behind(s, j) : why_none(j);
}

}  // namespace troupe::planners
