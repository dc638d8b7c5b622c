#include "planners/crius/crius.hpp"

#include <algorithm>

#include "messages/base/folds.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/time.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cluster/gpu_pools.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/crius/cell_tuner.hpp"
#include "planners/crius/crius_round.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "planners/policy/progress.hpp"

namespace troupe::planners {

namespace {

/// Fails if even the fastest plan breaks the job's limit on time, or the cheapest its budget
/// (planners/plans/bounds.hpp).
expected<void> check_limits(const job_spec& job, const std::vector<plan>& plans) {
  double run_s = never, price = never;
  for (const auto& p : plans) {
    const double s = job.global_batch / p.samples_per_s * static_cast<double>(job.iterations);
    run_s = std::min(run_s, s);
    price = std::min(price, cost_of_run(job, p));
  }
  return within_limits(job, run_s, price);
}

class crius final : public policy {
 public:
  explicit crius(crius_options o) : o_{std::move(o)} {}

  std::string_view name() const override { return o_.name; }
  /// An integer program over all jobs takes too long to solve at every event.
  policy_traits traits() const override {
    return {.round_s = o_.solver ? 300.0 : 0.0, .plans_by_request = true, .any_parallelism = true};
  }

  std::vector<parameter> parameters() override {
    return {{"search_depth", o_.search_depth, 0, 100},
            {"stay_restarts", o_.stay_restarts, 0, 1e6},
            {"change_cost", o_.change_cost, 0, 1e6},
            {"max_steps", o_.max_steps, 1, 1e12}};
  }
  void use(const policy_inputs& inputs) override {
    if (inputs.around_solve) o_.solve = around(inputs.around_solve, o_.solve);
  }

  /// When the next of the jobs that must stay may change.
  double decide_again_s(const snapshot& s) const override {
    double next_s = 0;
    for (const auto& [id, j] : s.running) {
      const double left_s = j.facts().resumable ? stays_s(s, o_, j) : 0;
      if (left_s > 0 && (next_s == 0 || left_s < next_s)) next_s = left_s;
    }
    return next_s;
  }

  /// The best Cell's plan for each type and count.
  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planning_budget& budget) const override {
    if (facts_of(job).exact_gpus)
      return plans_of_one_type(c, job, policy::plans_of(c, job, budget));
    const auto pools = pools_of(c, idle_index{c});
    const auto largest = max_of(
        pools, 0, [](const gpu_pool& p) { return p.nodes.size() * std::size_t{p.node_gpus}; });
    // If no Cell has enough memory, N_G is doubled: a user who asked for too few GPUs is served.
    // With explicit GPUs or stages the request is taken literally.
    auto asked = job;
    auto plans = plans_at(c, pools, asked);
    const bool open = !job.limits.max_gpus && job.pipeline == pipeline_wish{};
    while (plans.empty() && open && asked.request.gpus <= largest) {
      asked.request.gpus = 2 * std::max(1U, asked.request.gpus);
      plans = plans_at(c, pools, asked);
    }
    if (plans.empty())
      return refuse(
          reason::kind::infeasible,
          "no Cell with {} GPUs, or with half or twice as many, has enough memory for '{}'",
          wanted_gpus(asked), job.model.name);
    std::ranges::stable_sort(plans, std::greater{}, &plan::samples_per_s);
    // Pools of one type have the same Cells: the fastest of each type and count is kept.
    const auto same = [](const plan& a, const plan& b) {
      return a.gpu_types == b.gpu_types && a.gpus() == b.gpus();
    };
    std::vector<plan> once;
    for (auto& p : plans)
      if (std::ranges::none_of(once, [&](const plan& q) { return same(p, q); }))
        once.push_back(std::move(p));
    if (auto ok = check_limits(job, once); !ok) return refuse(ok.error());
    return once;
  }

  /// Studies in slots have no model to cut into Cells, and groups of their users' own are no Cells.
  bool places(const job_spec& job, bool) const override {
    return facts_of(job).has_model && !job.pipeline.groups;
  }

  std::vector<decision> decide(const snapshot& s, random_source&) const override {
    return o_.solver ? crius_round{s, o_}.solve() : crius_round{s, o_}.decide();
  }

  reason why_waiting(const snapshot& s, job_id job) const override {
    const auto it = s.waiting.find(job);
    if (it == s.waiting.end()) return not_waiting(job);
    const auto& j = it->second;
    if (!has_plans(j)) return why_none(j);
    const auto* note = s.note_of(job);
    if (!note) return not_decided_yet();
    if (note->why) return *note->why;
    return because(reason::kind::insufficient,
                   "its smallest Cell needs {} GPUs of one type; {} are idle, and no {} "
                   "rescalings of running jobs make room at a gain",
                   static_cast<std::uint32_t>(note->first),
                   static_cast<std::uint32_t>(note->second), o_.search_depth);
  }

 private:
  /// The plans of all pools and counts for the N_G of `job`.
  static std::vector<plan> plans_at(const cluster& c, const std::vector<gpu_pool>& pools,
                                    const job_spec& job) {
    std::vector<plan> plans;
    if (!facts_of(job).brings_layout) {
      for (auto& x : best_cells(c, pools, with_common_rows(job)))
        plans.push_back(std::move(*x.tuned));
      return plans_of_one_type(c, job, plans).value_or(std::vector<plan>{});
    }
    for (const auto& pool : pools)
      for (const auto n : cell_counts(job))
        if (n <= max_of_type(c, job, pool.gpu) && n <= pool.nodes.size() * pool.node_gpus)
          if (auto p = program_plan(c, pool, job, n)) plans.push_back(std::move(*p));
    return plans;
  }

  crius_options o_;
};

}  // namespace

std::optional<crius_options> crius_variant(std::string_view name) {
  crius_options o;
  o.name = name;
  if (name == "crius-na")
    o.adaptivity = false;
  else if (name == "crius-nh")
    o.heterogeneity = false;
  else if (name == "crius-ddl")
    o.deadlines = true;
  else if (name == "crius-solver")
    o.solver = true;
  else if (name != "crius")
    return {};
  return o;
}

std::unique_ptr<policy> make_crius(const crius_options& options) {
  return std::make_unique<crius>(options);
}

std::unique_ptr<policy> make_crius() {
  return make_crius(*crius_variant("crius"));
}

std::unique_ptr<policy> make_crius_na() {
  return make_crius(*crius_variant("crius-na"));
}

std::unique_ptr<policy> make_crius_nh() {
  return make_crius(*crius_variant("crius-nh"));
}

std::unique_ptr<policy> make_crius_ddl() {
  return make_crius(*crius_variant("crius-ddl"));
}

std::unique_ptr<policy> make_crius_solver() {
  return make_crius(*crius_variant("crius-solver"));
}

}  // namespace troupe::planners
