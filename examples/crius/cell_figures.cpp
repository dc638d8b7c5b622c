// Figures 12 and 13: the accuracy of estimates of Cells, and of their tuning.
#include <algorithm>
#include <cmath>
#include <optional>

#include "crius/figures.hpp"
#include "messages/base/random.hpp"
#include "messages/base/time.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/crius/cell_tuner.hpp"
#include "planners/policy/adaptive_plan.hpp"
#include "planners/schedule/named_schedule.hpp"
#include "planners/schedule/schedule.hpp"

using namespace troupe::planners;

namespace {

constexpr double jitter = 0.03;

double jittered(random_source& random, std::uint32_t gpus) {
  double slowest = 0;
  for (std::uint32_t i = 0; i < gpus; ++i)
    slowest = std::max(slowest, 1 + jitter * (2 * random.uniform() - 1));
  return slowest;
}

/// An iteration of the plan, its schedule carried out step by step: each GPU and each stage's
/// transfers are up to 3 % faster or slower, by chance. The mean of ten.
std::optional<double> played_s(const cluster& c, const job_spec& asked, const plan& how,
                               const allocation& where, random_source& random) {
  const auto job = as_scheduled(asked);
  const auto timed = time_plan(c, job, how, where);
  if (!timed) return {};
  const auto order = schedule_pipeline(timed->shapes.front(), schedule_name(job));
  if (!order) return {};
  double sum = 0;
  for (int i = 0; i < 10; ++i) {
    auto t = timed->times;
    t.iterations = 1;
    for (std::size_t k = 0; k < t.stages.size(); ++k) {
      auto& s = t.stages[k];
      const auto gpus = how.stages[k % how.stages.size()].tensor_parallel;
      const double by = jittered(random, gpus);
      for (auto* x : {&s.forward, &s.recompute, &s.backward, &s.update, &s.gradients}) *x *= by;
      if (t.routes.empty()) continue;
      auto& r = t.routes[k];
      const double link = jittered(random, 1);
      for (auto* x : {&r.forward, &r.backward}) x->alone_s *= link;
      for (auto& peer : r.peers) peer.route.alone_s *= link;
      r.sum_s *= link;
    }
    sum += simulated_iteration_s(*order, t);
  }
  return sum / 10;
}

/// The same plan by the Cell's formula; none: it is not among the Cell's divisions.
std::optional<double> estimated_s(const cell& x, const plan& how) {
  std::vector<std::uint32_t> chosen;
  for (std::size_t i = 0; i < how.stages.size(); ++i) {
    const auto& all = x.space.plans[i];
    const auto at = std::ranges::find(all, how.stages[i].tensor_parallel, &stage_plan::tensor);
    if (at == all.end() || !at->fits) return {};
    chosen.push_back(static_cast<std::uint32_t>(at - all.begin()));
  }
  return assembled(x.space, std::move(chosen)).estimate_s;
}

struct mean_and_ends {
  double sum = 0, min = 1e300, max = 0;
  int n = 0;
  void add(double x) {
    sum += x, ++n;
    min = std::min(min, x), max = std::max(max, x);
  }
  void add(const mean_and_ends& x) {
    sum += x.sum, n += x.n;
    min = std::min(min, x.min), max = std::max(max, x.max);
  }
  double mean() const { return sum / n; }
};

/// A pool's GPUs, and all Cells of a job on one number of them.
struct setting {
  const cluster& c;
  const gpu_pool& pool;
  const job_spec& job;
  std::vector<const cell*> cells;
  const cell* chosen = nullptr;  // that scheduling would use, with its plan
};

/// By how much less GPU time the estimate needs than an iteration on all GPUs: it runs a
/// micro-batch of each stage's two plans on one GPU, where nothing is sent.
double profiling_saved(const setting& at, const cell& x, double iteration_s) {
  auto alone = at.c;
  for (auto& n : alone.nodes) n.intra = n.inter = {"", 1e12, 0};
  double alone_s = 0;
  for (const auto& plans : sampled(space_of(alone, at.pool, at.job, x.stages)).plans)
    for (const auto& p : plans)
      if (p.fits) alone_s += p.work_s;
  return x.gpus * iteration_s / alone_s;
}

struct by_count {
  mean_and_ends estimation, of_chosen, saved, tuning, inside, log_fewer;
  int cases = 0;

  void add(const by_count& n) {
    estimation.add(n.estimation), of_chosen.add(n.of_chosen), saved.add(n.saved);
    tuning.add(n.tuning), inside.add(n.inside), log_fewer.add(n.log_fewer);
    cases += n.cases;
  }
};

/// The time of an iteration of the plan when its schedule is carried out, and the accuracy of the
/// estimate.
struct comparison {
  double played_s = 0, accuracy = 0;
};
std::optional<comparison> compare(const setting& at, const cell& x, const plan& how,
                                  random_source& random) {
  const auto estimate = estimated_s(x, how);
  const auto played = played_s(at.c, at.job, how, pack(at.pool, x.gpus), random);
  if (!estimate || !played) return {};
  return comparison{*played, 1 - std::abs(*estimate / *played - 1)};
}

/// Figure 12: all Cells that have a plan which can run; and the one that scheduling would use.
void estimate(const setting& at, by_count& out, random_source& random) {
  for (const auto* x : at.cells) {
    const auto how = runnable_plan(at.c, at.pool, at.job, *x);
    const auto compared = how ? compare(at, *x, *how, random) : std::nullopt;
    if (!compared) continue;
    out.estimation.add(compared->accuracy);
    out.saved.add(profiling_saved(at, *x, compared->played_s));
  }
  if (!at.chosen) return;
  if (const auto compared = compare(at, *at.chosen, *at.chosen->tuned, random))
    out.of_chosen.add(compared->accuracy);
}

/// Figure 13: the tuned Cells, against all plans on their GPUs.
void tune_best(const setting& at, const std::vector<cell>& all, by_count& out) {
  ++out.cases;
  if (at.cells.empty()) return;
  auto cells = at.cells;
  std::ranges::stable_sort(cells, {}, [](const cell* x) { return x->estimated->estimate_s; });
  if (cells.size() > tuned_cells) cells.resize(tuned_cells);
  double favoured_s = never, exact_s = never, measured_plans = 0;
  for (const auto* x : cells) {
    const auto t = tune(*x);
    favoured_s = std::min(favoured_s, t.favoured.estimate_s);
    exact_s = std::min(exact_s, t.exact.estimate_s);
    measured_plans += t.measured_plans;
  }
  const auto whole = full_space(all, *cells.front());
  out.tuning.add(1 - (favoured_s / whole.best_s - 1));
  out.inside.add(1 - (favoured_s / exact_s - 1));
  out.log_fewer.add(std::log(whole.plans / measured_plans));
}

by_count measure(const cluster& c, const extent& e, std::uint32_t gpus, random_source& random) {
  const auto pools = pools_of(c, idle_index{c});
  by_count out;
  for (const auto& m : table2_models)
    for (const auto batch : e.batches) {
      job_spec job;
      job.name = m.name;
      job.model = model_named(m.name);
      job.global_batch = job.model.family == "bert" ? batch / 2 : batch;  // as in Table 2
      job.request.gpus = gpus;
      job.limits.max_gpus = gpus;
      const auto all = cells_of(c, pools, job), best = best_cells(c, pools, job);
      for (std::uint32_t p = 0; p < pools.size(); ++p) {
        setting at{c, pools[p], job, {}};
        const auto is_here = [&](const cell& x) { return x.pool == p && x.gpus == gpus; };
        for (const auto& x : all)
          if (is_here(x) && x.estimated) at.cells.push_back(&x);
        if (const auto x = std::ranges::find_if(best, is_here); x != best.end()) at.chosen = &*x;
        estimate(at, out, random);
        tune_best(at, all, out);
      }
    }
  return out;
}

void print(const by_count& x, const std::string& gpus) {
  fmt::print(
      "  "
      "{:>4}{:7}{:8.1f}{:8.1f}{:8}{:8.1f}{:8.1f}{:10.1f}{:8.2f}{:8}/"
      "{:4}{:8.1f}{:8.1f}{:9.2f}{:8.1f}\n",
      gpus, x.estimation.n, 100 * x.estimation.mean(), 100 * x.estimation.min, x.of_chosen.n,
      100 * x.of_chosen.mean(), 100 * x.of_chosen.min, x.saved.mean(), x.saved.min, x.tuning.n,
      x.cases, 100 * x.tuning.mean(), 100 * x.tuning.min, 100 * x.inside.mean(),
      std::exp(x.log_fewer.mean()));
}

}  // namespace

void figures12_and13(const extent& e) {
  fmt::print(
      "\nFigures 12 and 13: the models of Table 2 on Table 1's GPUs, batches of {} (BERT: half). "
      "Accuracies in % "
      "(mean, worst).\nEstimates of all Cells that can run, and of those that would be used, "
      "against schedules carried out step\nby step with up to 3 % of jitter; GPU time (mean, "
      "least) "
      "and plans (geometric mean): by how much less\n\n"
      "  {:>4}{:>7}{:>16}{:>8}{:>16}{:>18}{:>13}{:>16}{:>9}{:>8}\n",
      fmt::join(e.batches, ", "), "GPUs", "Cells", "estimates", "used", "estimates", "GPU time",
      "tuned", "tuning", "in Cell", "plans");
  const auto c = cluster_named("crius-sim");
  random_source random{1};
  by_count total;
  for (const std::uint32_t gpus : {2, 4, 8, 16, 32}) {
    const auto n = measure(*c, e, gpus, random);
    print(n, std::to_string(gpus));
    total.add(n);
  }
  print(total, "all");
  const auto percents = [](const mean_and_ends& x) {
    return fmt::format("{:.1f} / {:.1f} %", 100 * x.mean(), 100 * x.min);
  };
  compared.push_back({"12a: accuracy of estimates, mean / worst", "93.4 / 90.5 %",
                      percents(total.of_chosen),
                      "the Cells that scheduling uses; simulated schedules, not GPUs"});
  compared.push_back({"12a: the same of all Cells", "", percents(total.estimation), "same"});
  compared.push_back(
      {"12b: GPU time of profiling, reduction, mean / least", "18.1 / 2.55",
       fmt::format("{:.1f} / {:.2f}", total.saved.mean(), total.saved.min),
       "computed, without starting; how often the paper runs what is not published"});
  compared.push_back(
      {"13a: tuning accuracy", "96.2 %", fmt::format("{:.1f} %", 100 * total.tuning.mean()),
       fmt::format("inside of a Cell {:.2f} %: its stages are cut before any plan is timed",
                   100 * total.inside.mean())});
  compared.push_back({"13b: plans to measure, reduction, mean / most", "5.48 / 10.88",
                      fmt::format("{:.1f} / {:.0f}", std::exp(total.log_fewer.mean()),
                                  std::exp(total.log_fewer.max)),
                      "plans, geometric mean; the paper's is tuning time"});
}
