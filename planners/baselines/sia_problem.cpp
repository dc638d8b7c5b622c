// Sia's integer program: pools, and for each job its configurations with their costs. A row of
// goodputs is divided by its minimum and multiplied by its smallest count, so that jobs of
// different models compare; a configuration then costs goodput^p with p < 0 (section 3.4). Goodput
// here is the cost model's samples per second: the batch is fixed, hence statistical efficiency
// is 1.

#include <algorithm>
#include <cmath>
#include <map>

#include "messages/domain/tensor_split.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/baselines/sia.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/mixed_plan.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "planners/policy/progress.hpp"

namespace troupe::planners {
namespace {

// Every configuration that can hold the job, idle or not; `cost` is the normalized goodput for now.
using shape_table = std::vector<sia_choice>;

// For one pool: the job's tensor-parallel unit replicated 1, 2, 3, ... times. The unit is the most
// efficient one at the minimum number of replicas that fits.
void add_pool(const cluster& c, const job_view& j, const program_speeds& speeds,
              const gpu_pool& pool, std::uint32_t pool_index, std::uint32_t largest_node,
              std::vector<sia_choice>& out) {
  const auto& job = *j.spec;
  const auto& type = c.gpus[pool.gpu].name;
  const double memory = c.gpus[pool.gpu].memory_bytes();
  const auto max = max_of_type(c, job, pool.gpu);
  std::vector<sia_choice> best;
  double best_rate = 0;
  for (std::uint32_t t = 1; t <= largest_node; t *= 2) {
    if (!splits_into(job.model, t)) break;
    std::vector<sia_choice> mine;
    for (const auto gpus : counts_of(pool)) {
      if (gpus % t != 0 || gpus / t > job.global_batch) continue;
      if (gpus > max) break;
      sia_choice x;
      x.pool = pool_index;
      x.how.data_parallel = gpus / t;
      x.how.tensor_parallel = t;
      x.how.gpu_types = {pool.gpu};
      x.how.bytes_per_gpu = program_bytes(job, x.how.data_parallel, t, c.settings.memory_headroom);
      if (!(x.how.bytes_per_gpu < memory) || x.how.bytes_per_gpu <= j.history.bytes_floor) continue;
      if (!may_have(j, x.how, type)) continue;
      const auto e = estimate_iteration(c, job, x.how, pack(pool, gpus));
      if (!(e.samples_per_s > 0)) continue;
      set_figures(x.how, e);
      x.how.samples_per_s = x.cost = speeds.rate_of(x.how, type, e.samples_per_s);
      mine.push_back(std::move(x));
    }
    if (mine.empty()) continue;
    const double rate = mine[0].how.samples_per_s / mine[0].how.gpus();
    if (rate > best_rate) {
      best = std::move(mine);
      best_rate = rate;
    }
  }
  out.insert(out.end(), best.begin(), best.end());
}

// For one pool: the plan of exactly as many GPUs as the program gets.
void add_exact(const job_view& j, const gpu_pool& pool, std::uint32_t pool_index,
               std::vector<sia_choice>& out) {
  if (!j.plans) return;
  for (const auto& p : *j.plans)
    if (p.gpu_types == std::vector{pool.gpu} && p.bytes_per_gpu > j.history.bytes_floor &&
        pool.has_equal(p.gpus()))
      out.push_back({pool_index, p, p.samples_per_s});
}

shape_table table_of(const cluster& c, const job_view& j, const std::vector<gpu_pool>& pools) {
  std::uint32_t largest_node = 1;
  for (const auto& p : pools) largest_node = std::max(largest_node, p.node_gpus);
  const program_speeds speeds{c, j};
  shape_table table;
  for (std::uint32_t i = 0; i < pools.size(); ++i)
    if (j.facts().exact_gpus)
      add_exact(j, pools[i], i, table);
    else
      add_pool(c, j, speeds, pools[i], i, largest_node, table);
  if (table.empty()) return table;
  const auto gpus = [](const sia_choice& x) { return x.how.gpus(); };
  const double min_cost = std::ranges::min(table, {}, &sia_choice::cost).cost;
  const auto fewest = gpus(std::ranges::min(table, {}, gpus));
  for (auto& x : table)
    x.cost *= fewest / min_cost;  // the row's minimum becomes its min_cost count
  return table;
}

// The discount of a running job's goodput for a change of configuration (Sia, section 3.4).
double restart_factor(const snapshot& s, const job_view& j, const sia_options& o) {
  const double age = s.now_s - j.submitted_s, restart = restart_of(s.cluster, j);
  if (s.now_s - j.started_s < restart && j.progress.attempts <= 1) return 1;
  const double restarts = j.progress.attempts - 1.0;
  const double r = std::max(age - restarts * restart, 0.0) / (age + restart);
  return std::max(o.min_restart_factor,
                  std::round(r * 50) / 50);  // in steps, so that more jobs are equal
}

// A configuration is a number of GPUs of a pool. The split of the job over them is not compared:
// with adaptive parallelism (adaptive_plan.hpp) the job runs with another split than its table has.
std::size_t present_choice(const shape_table& t, const std::vector<gpu_pool>& pools,
                           const job_view& j) {
  const auto gpus = total_gpus(j.where);
  for (std::size_t i = 0; i < t.size(); ++i)
    if (t[i].how.gpus() == gpus && pools[t[i].pool].contains(j.where)) return i;
  return sia_group::none;
}

// Removes choices that no solution needs: those that cost more than none, and those that need more
// GPUs of a pool than another without being better.
void prune(sia_group& g, const sia_options& o) {
  auto& xs = g.choices;
  std::vector<sia_choice> kept;
  auto present = sia_group::none;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const auto beats = [&](const sia_choice& y) {
      return y.pool == xs[i].pool && y.how.gpus() < xs[i].how.gpus() && y.cost <= xs[i].cost;
    };
    if (xs[i].cost >= o.unassigned || std::ranges::any_of(xs, beats)) continue;
    if (i == g.present) present = kept.size();
    kept.push_back(xs[i]);
  }
  xs = std::move(kept);
  g.present = present;
}

class writer {
 public:
  writer(const snapshot& s, const sia_options& o)
      : s_(s), o_(o), out_{pools_of(s.cluster, s.idle), {}, free_gpus{s.cluster, s.idle}, {}, {}} {}

  sia_problem write(std::span<const sia_mixed> granted) && {
    std::vector<const job_view*> running;
    for (const auto& [id, j] : s_.running) {
      if (keeps_gpus(j)) continue;
      out_.room.give_back(j.where);
      if (table(j).empty())
        out_.mixed.push_back({&j, j.how, j.where});
      else
        running.push_back(&j);
    }
    for (const auto& m : granted) out_.room.take(m.where);
    for (auto& p : out_.pools) {
      p.capacity = 0;
      for (const auto n : p.nodes) p.capacity += out_.room.of(n);
    }
    for (const auto* j : running) add_running(*j);
    std::uint32_t position = 0;
    for (const auto* j : in_order(s_.waiting)) {
      if (position == o_.max_waiting) break;
      if (add_waiting(*j, position)) ++position;
    }
    std::erase_if(out_.groups, [](const sia_group& g) { return g.choices.empty() && !g.running; });
    return std::move(out_);
  }

 private:
  // Jobs that are equal to the program share a row.
  struct row_key {
    const void* shape;
    double bytes_floor, factor;
    std::size_t present;
    bool running;
    auto operator<=>(const row_key&) const = default;
  };

  const shape_table& table(const job_view& j) {
    const auto key = std::pair(shape(j), j.history.bytes_floor);
    const auto it = tables_.find(key);
    if (it != tables_.end()) return it->second;
    return tables_.emplace(key, table_of(s_.cluster, j, out_.pools)).first->second;
  }
  static const void* shape(const job_view& j) {
    return j.plans ? static_cast<const void*>(j.plans.get()) : j.spec.get();
  }

  sia_group* find(const row_key& key) {
    const auto [it, fresh] = rows_.emplace(key, out_.groups.size());
    if (!fresh) return &out_.groups[it->second];
    out_.groups.emplace_back();
    return nullptr;
  }

  void add_running(const job_view& j) {
    const auto& t = table(j);
    const auto present = present_choice(t, out_.pools, j);
    const double factor = restart_factor(s_, j, o_);
    if (auto* g = find({shape(j), j.history.bytes_floor, factor, present, true})) {
      g->jobs.push_back(&j);
      return;
    }
    auto& g = out_.groups.back();
    g.running = true;
    g.jobs.push_back(&j);
    std::uint32_t last_pool = ~0u;
    for (std::size_t i = 0; i < t.size(); ++i) {
      auto x = t[i];
      const bool smallest = x.pool != last_pool;
      last_pool = x.pool;
      // At most doubling per round; a pool's smallest count is always allowed.
      if (!smallest && x.how.gpus() > 2 * total_gpus(j.where)) continue;
      if (x.how.gpus() > out_.pools[x.pool].capacity) continue;
      if (i == present) {
        g.present = g.choices.size();
        x.cost = std::pow(x.cost, o_.fairness_power);
      } else {
        x.cost = std::pow(x.cost * factor, o_.fairness_power) + o_.change;
      }
      g.choices.push_back(std::move(x));
    }
    prune(g, o_);
  }

  // A job starts at the smallest count of a pool. The oldest comes first among equals.
  bool add_waiting(const job_view& j, std::uint32_t position) {
    const auto& t = table(j);
    if (t.empty()) {
      if (has_mixed_plan(j))
        out_.mixed.push_back({&j, {}, {}});
      else
        out_.hopeless.push_back(&j);
      return false;
    }
    if (auto* g = find({shape(j), j.history.bytes_floor, 1, sia_group::none, false})) {
      g->jobs.push_back(&j);
      return true;
    }
    auto& g = out_.groups.back();
    g.jobs.push_back(&j);
    std::uint32_t last_pool = ~0u;
    for (auto x : t) {
      if (x.pool == last_pool) continue;
      last_pool = x.pool;
      if (x.how.gpus() > out_.pools[x.pool].capacity) continue;
      x.cost = std::pow(x.cost, o_.fairness_power) * (1 + 1e-4 + 1e-7 * position);
      g.choices.push_back(std::move(x));
    }
    prune(g, o_);
    return true;
  }

  const snapshot& s_;
  const sia_options& o_;
  sia_problem out_;
  // Keyed by addresses, and never iterated: their order reaches no output.
  std::map<std::pair<const void*, double>, shape_table> tables_;
  std::map<row_key, std::size_t> rows_;
};

}  // namespace

sia_problem make_sia_problem(const snapshot& s, const sia_options& options,
                             std::span<const sia_mixed> granted) {
  ++searches_made;
  return writer(s, options).write(granted);
}

bool keeps_gpus(const job_view& j) {
  const auto work = j.facts();
  return work.has_processes && !work.resumable;
}

bool nothing_to_gain(const sia_problem& problem) {
  if (!problem.mixed.empty()) return false;
  return std::ranges::all_of(problem.groups, [](const sia_group& g) {
    if (!g.running) return g.choices.empty();
    if (g.present == sia_group::none) return false;
    return std::ranges::all_of(
        g.choices, [&](const sia_choice& x) { return x.cost >= g.choices[g.present].cost; });
  });
}

}  // namespace troupe::planners
