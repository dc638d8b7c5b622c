#include "planners/troupe/configurations.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "messages/base/folds.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/cost/stage_time.hpp"
#include "planners/devices/guesses.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/user_request.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "planners/policy/placement.hpp"
#include "planners/policy/progress.hpp"
#include "planners/troupe/pipelined_plans.hpp"

namespace troupe::planners {

namespace {

constexpr std::size_t largest_cache = 4096;  // lists

}  // namespace

// A number in the job file is a wish to keep: only a shape that is left open entirely may change.
bool is_elastic(const job_spec& job) {
  const auto& w = job.pipeline;
  const bool open = w.stages == 0 && w.data_parallel == 0 && w.tensor_parallel == 0 &&
                    w.microbatches == 0 && w.rows == 0 && w.cut.empty() &&
                    w.stages_per_datacenter == 0 && w.virtual_stages == 0 && !w.groups;
  const auto work = facts_of(job);
  return work.has_stages && open && work.resumable;
}

std::vector<double> relative_speeds(const cluster& c) {
  std::vector<bool> has_nodes(c.gpus.size());
  for (const auto& n : c.nodes)
    if (n.gpus > 0) has_nodes[n.gpu] = true;
  double fastest = 0;
  for (gpu_index g = 0; g < c.gpus.size(); ++g)
    if (has_nodes[g]) fastest = std::max(fastest, flops_s(c.gpus[g]));
  std::vector<double> speeds;
  for (const auto& g : c.gpus) speeds.push_back(fastest > 0 ? flops_s(g) / fastest : 1);
  return speeds;
}

double weight_of(const cluster& c, const std::vector<double>& speeds, const allocation& where) {
  double weight = 0;
  for (const auto& n : where) weight += n.gpus * speeds[c.nodes[n.node].gpu];
  return weight;
}

double worth(const job_spec& job, const plan& how) {
  if (job.objective == "fastest") return how.samples_per_s;
  if (job.objective == "cheapest") {
    const double cost = cost_of_run(job, how, 1);
    return cost > 0 ? 1 / cost : how.samples_per_s;
  }
  return how.samples_per_s / how.gpus();
}

namespace {

/// The fastest split on `gpus` GPUs of the pool. By the job's plans, if it has any: they account
/// for the memory that it turned out to need.
std::optional<plan> fastest_split(const cluster& c, const gpu_pool& pool, std::uint32_t gpus,
                                  const job_view& j, const program_speeds& speeds,
                                  std::uint32_t max_tensor) {
  const auto& job = *j.spec;
  if (facts_of(job).pipelines) return {};
  const auto& type = c.gpus[pool.gpu].name;
  if (std::ranges::none_of(*j.plans, [](const plan& p) { return p.stages.empty(); })) {
    auto how = split_for(c, job, pack(pool, gpus), j.history.bytes_floor, max_tensor);
    if (how.bytes_per_gpu == 0 || how.data_parallel > job.global_batch) return {};
    if (!may_have(j, how, type)) return {};
    how.samples_per_s = speeds.rate_of(how, type, how.samples_per_s);
    return how;
  }
  const double memory = c.gpus[pool.gpu].memory_bytes();
  std::optional<plan> best;
  for (const auto& p : *j.plans) {
    if (!p.stages.empty() || p.gpus() != gpus || p.tensor_parallel > max_tensor) continue;
    if (!(p.bytes_per_gpu < memory) || p.bytes_per_gpu <= j.history.bytes_floor) continue;
    if (!may_have(j, p, type)) continue;
    auto how = p;
    how.gpu_types = {pool.gpu};
    how.tensor_in_node = true;
    const auto e = estimate_iteration(c, job, how, pack(pool, gpus));
    set_figures(how, e);
    how.samples_per_s = speeds.rate_of(how, type, e.samples_per_s);
    if (!best || how.samples_per_s > best->samples_per_s) best = std::move(how);
  }
  return best;
}

/// A pool's configurations, the fewest GPUs first. Counts that are not faster than a smaller one
/// are left out here, once, instead of being compared in every decision: the job would hold more
/// GPUs for nothing.
std::vector<configuration> configurations_in(const cluster& c, const std::vector<gpu_pool>& pools,
                                             std::uint32_t p, const job_view& j, double speed,
                                             std::uint32_t max_tensor) {
  const auto& job = *j.spec;
  const auto max = max_of_type(c, job, pools[p].gpu);
  const program_speeds speeds{c, j};
  const bool guess = rests_on_guess(job, c.gpus[pools[p].gpu]);
  double best = 0;
  std::vector<configuration> out;
  for (const auto gpus : counts_of(pools[p])) {
    if (gpus > max) break;
    auto how = fastest_split(c, pools[p], gpus, j, speeds, max_tensor);
    auto stages = fastest_pipelines(c, pools, p, gpus, job, *j.plans, j.history.bytes_floor);
    if (stages && (!how || stages->samples_per_s > how->samples_per_s)) how = std::move(stages);
    if (!how || !(how->samples_per_s >= best * min_gain)) continue;
    best = how->samples_per_s;
    out.push_back({p, std::move(*how), speed * gpus, gpus, guess});
  }
  return out;
}

}  // namespace

std::vector<configuration> configurations_of(const cluster& c, const std::vector<gpu_pool>& pools,
                                             const job_view& j) {
  const auto work = j.facts();
  if (work.exact_gpus) return {};  // placed by its plans, as many GPUs of each node
  if (!j.plans->empty() && spans_pools(pools, j.plans->front())) return {};
  const auto speeds = relative_speeds(c);
  const auto max_tensor = largest_node(c);
  std::vector<configuration> out;
  for (std::uint32_t p = 0; p < pools.size(); ++p) {
    auto of_pool = configurations_in(c, pools, p, j, speeds[pools[p].gpu], max_tensor);
    // A program that is not elastic keeps its GPUs to its end, whatever jobs arrive later.
    if (!work.stoppable && !of_pool.empty())
      of_pool = {*std::ranges::max_element(
          of_pool, {}, [&](const configuration& x) { return worth(*j.spec, x.how); })};
    std::ranges::move(of_pool, std::back_inserter(out));
  }
  return out;
}

namespace {

double sample_cost(const std::vector<configuration>& options, const job_view& j) {
  double min = std::numeric_limits<double>::infinity();
  for (const auto& o : options) min = std::min(min, o.weight / o.how.samples_per_s);
  if (options.empty())
    for (const auto& p : *j.plans) min = std::min(min, p.gpus() / p.samples_per_s);
  return min;
}

double fastest(const std::vector<configuration>& options, const job_view& j) {
  double max = 0;
  for (const auto& o : options) max = std::max(max, o.how.samples_per_s);
  if (options.empty())
    for (const auto& p : *j.plans) max = std::max(max, p.samples_per_s);
  return max;
}

}  // namespace

void set_options(configuration_table& table, std::vector<configuration> options) {
  table.figures.clear();
  table.pools.clear();
  table.min_weight =
      options.empty() ? 0 : std::ranges::min(options, {}, &configuration::weight).weight;
  for (const auto& o : options) {
    table.figures.push_back({o.how.samples_per_s, o.weight, o.pool, o.gpus, o.guess});
    if (table.pools.empty() || table.pools.back() != o.pool) table.pools.push_back(o.pool);
  }
  table.options = std::move(options);
}

// Entries are keyed by the address of a list of plans. The entry holds the list, so that its
// address is not used again; one that only the cache holds belongs to jobs that are gone.
bool configuration_cache::prepare(const snapshot& s) {
  const auto& c = s.cluster;
  const bool known = shared_ && shared_ == s.shared_cluster && shared_.get() == &c;
  const bool other = !known && !(cluster_ == c);
  if (other) {
    entries_.clear();
    cluster_ = c;
    pools_ = planners::pools_of(c, idle_index{c});
    pool_of_.assign(c.nodes.size(), static_cast<std::uint32_t>(pools_.size()));
    for (std::uint32_t p = 0; p < pools_.size(); ++p)
      for (const auto n : pools_[p].nodes) pool_of_[n] = p;
    speeds_ = relative_speeds(c);
    gpus_ = sum_of(c.nodes, [](const node& n) { return static_cast<double>(n.gpus); });
  }
  shared_ = s.shared_cluster;
  if (entries_.size() > largest_cache)
    std::erase_if(entries_, [](const auto& e) { return e.second->plans.use_count() == 1; });
  return other;
}

const configuration_table& configuration_cache::of(const cluster& c, const recent_arrival& a) {
  if (const auto at = entries_.find({a.plans.get(), 0}); at != entries_.end())
    return at->second->table;
  job_view j;
  j.spec = a.spec;
  j.plans = a.plans;
  return of(c, j);
}

const configuration_table& configuration_cache::of(const cluster& c, const job_view& j) {
  auto& e = entries_[{j.plans.get(), j.history.bytes_floor}];
  if (!e) {
    e = std::make_unique<entry>();
    e->plans = j.plans;
    set_options(e->table, configurations_of(c, pools_, j));
    e->table.sample_cost = sample_cost(e->table.options, j);
    e->table.fastest_samples_per_s = fastest(e->table.options, j);
    e->table.efficient_weight = 1;
    for (const auto& o : e->table.options)
      if (o.weight / o.how.samples_per_s <= e->table.sample_cost)
        e->table.efficient_weight = o.weight;
    std::vector<double> per_gpu(pools_.size());
    for (const auto& o : e->table.options)
      per_gpu[o.pool] = std::max(per_gpu[o.pool], o.how.samples_per_s / o.gpus);
    for (std::size_t p = 0; p < pools_.size(); ++p)
      e->table.cluster_samples_per_s +=
          per_gpu[p] * static_cast<double>(pools_[p].nodes.size()) * pools_[p].node_gpus;
  }
  return e->table;
}

}  // namespace troupe::planners
