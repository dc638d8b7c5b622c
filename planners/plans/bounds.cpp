#include "planners/plans/bounds.hpp"

#include <utility>

#include <fmt/ranges.h>

#include "messages/base/refuse.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/run_cost.hpp"

namespace troupe::planners {

namespace {

/// Leaves as many idle GPUs of a type as its quota allows, on the nodes that have most: of the same
/// number of GPUs the fewest nodes, hence the fastest links.
void keep_quota(idle_index& idle, gpu_index g, std::uint32_t quota) {
  std::vector<node_index> nodes;
  for (auto p = idle.before(g, idle_index::none); p != idle_index::none; p = idle.before(g, p))
    nodes.push_back(idle.node_at(g, p));
  for (const auto n : nodes) {
    const auto keep = std::min(quota, idle.idle(n));
    idle.set_idle(n, keep);
    quota -= keep;
  }
}

}  // namespace

// Bounds are enforced by taking GPUs away, not by a check in each search: every planner searches
// idle GPUs already, and sees only allowed ones. Jobs without bounds, which are most, share the
// index itself.
const idle_index& allowed_idle(const cluster& c, const idle_index& idle, const job_spec& job,
                               std::optional<idle_index>& restricted) {
  restricted.reset();
  if (!allows_all_types(job)) {
    restricted.emplace(idle);
    for (node_index n = 0; n < c.nodes.size(); ++n)
      if (!allows(job, c.gpu_of(n))) restricted->set_idle(n, 0);
  }
  for (gpu_index g = 0; g < c.gpus.size(); ++g) {
    const auto quota = c.gpus[g].quota;
    if (quota == 0 || idle.idle_of(g) <= quota || !allows(job, c.gpus[g])) continue;
    if (!restricted) restricted.emplace(idle);
    keep_quota(*restricted, g, quota);
  }
  return restricted ? *restricted : idle;
}

// The smaller of the job's own limit and the type's quota.
std::uint32_t max_of_type(const cluster& c, const job_spec& job, gpu_index g) {
  if (!allows(job, c.gpus[g])) return 0;
  constexpr auto any = std::numeric_limits<std::uint32_t>::max();
  const auto quota = c.gpus[g].quota;
  return std::min(quota > 0 ? quota : any, job.limits.max_gpus.value_or(any));
}

expected<std::vector<plan>> plans_of_one_type(const cluster& c, const job_spec& job,
                                              const expected<std::vector<plan>>& plans) {
  if (!plans) return plans;
  std::vector<plan> out;
  for (const auto& p : *plans)
    for (const auto g : p.gpu_types) {
      if (p.gpus() > max_of_type(c, job, g)) continue;
      out.push_back(p);
      out.back().gpu_types = {g};
    }
  if (out.empty()) return no_single_type(job);
  return out;
}

// Within a node, of whole nodes, or as many of each node, which may divide tensor groups.
bool holds(const gpu_pool& pool, const job_spec& job, const plan& how) {
  const auto gpus = how.gpus();
  if (how.gpu_types.empty() || how.gpu_types[0] != pool.gpu) return false;
  if (how.tensor_parallel > pool.node_gpus || gpus > pool.nodes.size() * pool.node_gpus)
    return false;
  if (facts_of(job).exact_gpus) return job.request.unequal.value_or(false) || pool.has_equal(gpus);
  const bool whole = gpus < pool.node_gpus || gpus % pool.node_gpus == 0;
  return whole || (how.tensor_parallel == 1 && pool.has_equal(gpus));
}

// A number of GPUs that no pool can give would be taken for the job's request, and the job would
// wait for ever.
expected<std::vector<plan>> plans_of_one_pool(const cluster& c, const job_spec& job,
                                              const expected<std::vector<plan>>& plans) {
  auto out = plans_of_one_type(c, job, plans);
  if (!out) return out;
  const auto pools = pools_of(c, idle_index{c});
  std::erase_if(*out, [&](const plan& p) {
    return std::ranges::none_of(pools, [&](const auto& pool) { return holds(pool, job, p); });
  });
  if (out->empty()) return no_single_type(job);
  return out;
}

tl::unexpected<reason> no_single_type(const job_spec& job) {
  return refuse(reason::kind::infeasible, "no GPUs of a single type hold '{}'", job.model.name);
}

std::string_view bound_key(const job_spec& job) {
  if (job.program.elastic && job.program.elastic->max_gpus > 0 &&
      job.limits.max_gpus == job.program.elastic->max_gpus)
    return "elastic.gpus";
  return !facts_of(job).has_processes && job.limits.max_gpus == job.request.gpus ? "gpus"
                                                                                 : "max_gpus";
}

std::string allowed_types(const job_spec& job) {
  if (!job.limits.required_gpu_type.empty() || !job.program.elastic)
    return job.limits.required_gpu_type;
  return fmt::format("{}", fmt::join(job.program.elastic->types, ", "));
}

std::string_view types_key(const job_spec& job) {
  return job.limits.required_gpu_type.empty() ? "elastic.types" : "gpu_type";
}

namespace {

/// Launchers of distributed programs start the same number of processes on every node, unless the
/// program says that it can do without.
expected<void> has_exact_number(const cluster& c, const job_spec& job, const allocation& where) {
  if (const auto n = total_gpus(where); n != job.request.gpus)
    return refuse(reason::kind::invalid, "uses {} GPUs; the program gets exactly {} (gpus)", n,
                  job.request.gpus);
  if (job.request.unequal.value_or(false)) return {};
  for (const auto& share : where)
    if (const auto& first = where.front(); share.gpus != first.gpus)
      return refuse(reason::kind::invalid,
                    "uses {} GPUs of {} and {} of {}; a program with gpus gets as many "
                    "of each node (unless `unequal: true`)",
                    first.gpus, c.nodes[first.node].name, share.gpus, c.nodes[share.node].name);
  return {};
}

}  // namespace

expected<void> within_numbers(const cluster& c, const job_spec& job, const allocation& where) {
  if (facts_of(job).exact_gpus)
    if (auto ok = has_exact_number(c, job, where); !ok) return ok;
  if (job.limits.max_gpus && total_gpus(where) > *job.limits.max_gpus)
    return refuse(reason::kind::invalid, "uses {} GPUs; the job allows {} ({})", total_gpus(where),
                  *job.limits.max_gpus, bound_key(job));
  if (const auto n = total_gpus(where); facts_of(job).elastic && n < job.program.elastic->min_gpus)
    return refuse(reason::kind::invalid,
                  "uses {} GPUs; the program runs on at least {} (elastic.gpus)", n,
                  job.program.elastic->min_gpus);
  std::vector<std::uint32_t> used(c.gpus.size());
  for (const auto& share : where) {
    const auto& gpu = c.gpu_of(share.node);
    if (!allows(job, gpu))
      return refuse(reason::kind::invalid, "uses {} of {}; the job allows {} only ({})", gpu.name,
                    c.nodes[share.node].name, allowed_types(job), types_key(job));
    const auto n = used[c.nodes[share.node].gpu] += share.gpus;
    if (gpu.quota > 0 && n > gpu.quota)
      return refuse(reason::kind::invalid, "uses {} {}; a job may have {} (quota)", n, gpu.name,
                    gpu.quota);
  }
  return {};
}

bool within_budget(const job_spec& job, const plan& how) {
  return !job.limits.budget || !(cost_of_run(job, how) > *job.limits.budget);
}

// The figure is of the best plan (fastest or cheapest), so that the user learns by how much the
// limit is missed; a price is given of plans that are fast enough.
expected<void> within_limits(const job_spec& job, double run_s, double price) {
  for (const auto& [name, limit] :
       {std::pair{"slo_s", job.limits.slo_s}, {"deadline_s", job.limits.deadline_s}})
    if (limit && run_s > *limit)
      return refuse(reason::kind::infeasible,
                    "no plan meets {} ({:g} s); the fastest takes {:.4g} s", name, *limit, run_s);
  if (job.limits.budget && price > *job.limits.budget)
    return refuse(reason::kind::infeasible,
                  "no plan stays within the budget of {:g}; the cheapest{} costs {:.4g}",
                  *job.limits.budget,
                  job.limits.slo_s || job.limits.deadline_s ? " that is fast enough" : "", price);
  return {};
}

}  // namespace troupe::planners
