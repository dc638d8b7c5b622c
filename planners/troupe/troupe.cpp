// Troupe's own policy, the default (docs/planners/troupe.md): the shortest work first, each job on
// as many GPUs as are worth what the jobs behind it lose by them.

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "planners/core/bounds.hpp"
#include "planners/core/policy.hpp"
#include "planners/core/queue_order.hpp"
#include "planners/pipeline/placement.hpp"
#include "planners/troupe/assignment.hpp"
#include "planners/troupe/pipelined_plans.hpp"
#include "planners/troupe/reasons.hpp"

namespace troupe::planners {
namespace {

using kind = reason::kind;

double samples_left(const job_view& j, double now_s, double restart_s) {
  double done = static_cast<double>(j.iterations_done);
  if (!j.where.empty() && j.iteration_s > 0)
    done += std::max(0.0, now_s - j.started_s - restart_s) / j.iteration_s;
  const double left = std::max(1.0, static_cast<double>(j.spec->iterations) - done);
  return left * j.spec->global_batch;
}

bool same_shape(const plan& a, const plan& b) {
  return a.data_parallel == b.data_parallel && a.tensor_parallel == b.tensor_parallel &&
         a.pipeline_parallel == b.pipeline_parallel && a.stages.size() == b.stages.size();
}

std::optional<std::size_t> present_option(const std::vector<configuration>& options,
                                          const std::vector<gpu_pool>& pools, const job_view& j) {
  for (std::size_t i = 0; i < options.size(); ++i) {
    const auto& how = options[i].how;
    if (how.gpus() == total_gpus(j.where) && same_shape(how, j.how) &&
        pools[options[i].pool].contains(j.where))
      return i;
  }
  return {};
}

// Nothing of this job can be decided here: it has no plan, or runs out of memory with each of them.
bool is_hopeless(const job_view& j) {
  return !j.plans || std::ranges::none_of(
                         *j.plans, [&](const plan& p) { return p.bytes_per_gpu > j.bytes_floor; });
}

reason why_hopeless(const job_view& j) {
  if (!j.plans || j.plans->empty()) return why_none(j);
  return {kind::infeasible,
          fmt::format("ran out of memory at {:.1f} GB per GPU, and no plan provides more",
                      j.bytes_floor / bytes_per_gb)};
}

// Those within the job's limits of time and cost.
std::vector<plan> configured_plans(const cluster& c, const job_spec& job) {
  const auto pools = pools_of(c, idle_index{c});
  job_view j;
  j.spec = std::make_shared<const job_spec>(job);
  const bool simulated = job.command.empty() && !job.memory;
  j.plans = std::make_shared<const std::vector<plan>>(simulated ? pipelined_plans(c, pools, job)
                                                                : std::vector<plan>{});
  std::vector<plan> plans;
  for (auto& o : configurations_of(c, pools, j)) {
    const auto& p = o.how;
    const double s = job.global_batch / p.samples_per_s * static_cast<double>(job.iterations);
    if (within_limits(job, s, p.cost_per_hour * s / 3600)) plans.push_back(std::move(o.how));
  }
  std::ranges::stable_sort(plans, std::greater{}, [&](const plan& p) {
    return job.command.empty() ? p.samples_per_s : worth(job, p);
  });
  return plans;
}

bool same_nodes(allocation a, allocation b) {
  std::ranges::sort(a, {}, &node_share::node);
  std::ranges::sort(b, {}, &node_share::node);
  return a == b;
}

class troupe_policy : public policy {
 public:
  std::string_view name() const override { return "troupe"; }

  /// Its configurations, best by its objective first, or fastest first if it can be stopped; then
  /// those of MARP's plans that none of them has.
  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planning_budget& budget) const override {
    auto others = policy::plans_of(c, job, budget);
    if (is_pipeline_job(job)) return others;
    if (!others && others.error().code != kind::infeasible) return others;
    auto plans = configured_plans(c, job);
    if (plans.empty()) return others;
    if (!others) return plans;
    for (auto& p : *others)
      if (std::ranges::none_of(plans, [&](const plan& q) { return same_shape(p, q); }))
        plans.push_back(std::move(p));
    return plans;
  }

  std::vector<decision> decide(const snapshot& all_jobs, random_source&) const override {
    std::vector<decision> out;
    std::optional<idle_index> rest;
    cache_.prepare(all_jobs.cluster);
    const auto all_pools = pools_of(all_jobs.cluster, all_jobs.idle);
    job_views trainings;
    for (const auto& [id, j] : all_jobs.waiting)
      if (is_training(all_jobs.cluster, all_pools, j)) trainings.emplace(id, j);
    const auto begun = start_trainings({all_jobs.now_s, all_jobs.cluster, all_jobs.idle, trainings,
                                        all_jobs.running, all_jobs.moving},
                                       out, rest);
    const snapshot s{begun.now_s,      begun.cluster,    begun.idle,
                     all_jobs.waiting, all_jobs.running, all_jobs.moving};
    const auto pools = pools_of(s.cluster, s.idle);
    const auto contenders = contenders_of(s, pools, out);
    if (contenders.empty()) return out;
    free_gpus free{s.cluster, s.idle};
    for (const auto& x : contenders) free.give_back(x.job->where);
    auto all = assign(s.cluster, pools, contenders, free, s.now_s, options_);
    place(s.cluster, pools, std::move(all), std::move(free), out);
    return out;
  }

  reason why_waiting(const snapshot& s, job_id job) const override {
    const auto it = s.waiting.find(job);
    if (it == s.waiting.end()) return {kind::unknown, fmt::format("job {} is not waiting", job)};
    const auto& j = it->second;
    cache_.prepare(s.cluster);
    if (is_training(s.cluster, pools_of(s.cluster, s.idle), j)) return why_training_waits(s, j);
    if (is_hopeless(j)) return why_hopeless(j);
    const auto pools = pools_of(s.cluster, s.idle);
    std::vector<decision> ignored;
    const auto all = contenders_of(s, pools, ignored);
    const auto mine = std::ranges::find(all, job, [](const contender& x) { return x.job->id; });
    if (mine == all.end()) return {kind::insufficient, "waits for its turn"};
    const auto rank = [](const contender& x) {
      return std::pair(-x.job->spec->priority, x.samples_left * x.table->sample_cost);
    };
    const auto before = static_cast<std::size_t>(std::ranges::count_if(
        all, [&](const auto& x) { return !x.job->where.empty() && rank(x) <= rank(*mine); }));
    return {kind::insufficient,
            why_behind(s.cluster, *mine, s.idle.total_idle(), before, s.running.size() - before)};
  }

 private:
  /// Pipelines of the built-in trainer, and of simulated work whose limits only stages of several
  /// GPU types meet: start_trainings places them, and they run to their end. So do programs of the
  /// user's own: nobody knows whether they would go on where they were.
  bool is_training(const cluster& c, const std::vector<gpu_pool>& pools, const job_view& j) const {
    return is_pipeline_job(*j.spec) || (j.training && cache_.of(c, pools, j).options.empty());
  }

  std::vector<contender> contenders_of(const snapshot& s, const std::vector<gpu_pool>& pools,
                                       std::vector<decision>& out) const {
    std::vector<const job_view*> jobs;
    for (const auto& [id, j] : s.running)
      if (j.spec->command.empty() && !is_training(s.cluster, pools, j)) jobs.push_back(&j);
    for (const auto& [id, j] : s.waiting) {
      if (is_training(s.cluster, pools, j)) continue;
      if (is_hopeless(j))
        out.push_back({decision::kind::give_up, id, {}, {}, why_hopeless(j)});
      else
        jobs.push_back(&j);
    }
    const double restart_s = s.cluster.settings.restart_s;
    std::vector<contender> contenders;
    contenders.reserve(jobs.size());
    for (const auto* job : jobs) {
      const auto& j = *job;
      auto& x = contenders.emplace_back();
      x.job = job;
      x.table = &cache_.of(s.cluster, pools, j);
      x.samples_left = samples_left(j, s.now_s, restart_s);
      if (j.where.empty()) continue;
      x.start_left_s = std::max(0.0, j.started_s + restart_s - s.now_s);
      x.present = present_option(x.options(), pools, j);
    }
    return contenders;
  }

  // Counts become nodes, the largest first, and what differs from the present becomes decisions.
  void place(const cluster& c, const std::vector<gpu_pool>& pools, std::vector<assigned> all,
             free_gpus free, std::vector<decision>& out) const {
    std::ranges::stable_sort(all, std::greater{}, [](const assigned& a) {
      return a.option ? a.who->options()[*a.option].how.gpus() : 0;
    });
    std::vector<count_grant> grants;
    for (const auto& a : all) {
      free.take(a.mixed_where);
      if (!a.option) continue;
      const auto& o = a.who->options()[*a.option];
      grants.push_back({o.pool, o.how.gpus(), &a.who->job->where, a.option == a.who->present});
    }
    place_counts(pools, grants, free);

    std::vector<decision> starts;
    std::size_t next = 0;
    for (auto& a : all) {
      const auto& j = *a.who->job;
      auto where = a.option ? std::move(grants[next++].where) : std::move(a.mixed_where);
      const bool runs = !j.where.empty();
      const bool stays =
          runs && same_nodes(where, j.where) && (!a.option || a.option == a.who->present);
      if (stays) continue;
      if (where.empty() && runs && free.has(j.where)) {
        free.take(j.where);  // no room for its change, and nobody else has its GPUs
        continue;
      }
      if (runs) out.push_back({decision::kind::stop, j.id, {}, {}, {}});
      if (where.empty()) continue;
      if (!a.option) a.mixed_where = where;
      const reason why{kind::unknown, why_assigned(c, a, options_)};
      auto how = a.option ? a.who->options()[*a.option].how : std::move(a.mixed);
      starts.push_back({decision::kind::start, j.id, std::move(how), std::move(where), why});
    }
    std::ranges::move(starts, std::back_inserter(out));
  }

  troupe_options options_;
  mutable configuration_cache cache_;  // of a pure function
};

}  // namespace

std::unique_ptr<policy> make_troupe() {
  return std::make_unique<troupe_policy>();
}

}  // namespace troupe::planners
