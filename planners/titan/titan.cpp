// TITAN's decision (Gao et al., SoCC 2022, sections 3 and 4; docs/planners/titan.md). Section 3
// asks the program whenever a job is submitted or completed. A decision has four steps:
//
// 1. Time estimator (4.1): plans_of() gives a job one plan for each GPU type and count of (4)'s set
//    A, the configuration of the lookup table that ends first. Its samples_per_s is the number of
//    samples over the time of all iterations, so that T_ia = 1 / (start + samples / samples_per_s).
// 2. Columns (tuning_problem.hpp): T_ia times the job's weight, for each pool and count, and the
//    same of unions (4.2). GPUs of jobs that are about to end count as idle (4.3).
// 3. The program (titan_problem.hpp), exact or within its gap.
// 4. Nodes: counts on nodes, the largest first. The program's rows guarantee that there is room on
//    idle GPUs; with GPUs that are still held one may have to wait, since a job follows one other
//    at most.

#include "planners/titan/titan.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cluster/gpu_pools.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/places.hpp"
#include "planners/policy/placement.hpp"
#include "planners/policy/progress.hpp"
#include "planners/titan/tuning_problem.hpp"
#include "planners/titan/tuning_tables.hpp"

namespace troupe::planners {
namespace {

using kind = reason::kind;

/// A running job, or union, whose GPUs are given away before it ends.
struct ending_job {
  const job_view* job = nullptr;
  double left_s = 0;
  free_gpus gpus;  // that no other job has been given
};

constexpr double rounding_s = 1e-6;

/// Seconds until simulated work ends, as it is expected to.
double left_s_of(const snapshot& s, const job_view& j) {
  const double start_s = j.start_s.value_or(s.cluster.settings.restart_s);
  return std::max(0.0, j.started_s + start_s - s.now_s) + iterations_left(s, j) * j.iteration_s;
}

/// Where a decision's jobs go: idle GPUs, or those of one job that ends.
class titan_placer {
 public:
  titan_placer(const snapshot& s, std::vector<ending_job> ending)
      : idle_{s.cluster, s.idle}, ending_{std::move(ending)} {}

  struct place {
    allocation where;
    const ending_job* after = nullptr;
  };

  /// Idle GPUs first, then, for simulated work, those of one ending job, then both together: a
  /// program follows no other job. Takes what it returns; `where` empty: there is no room.
  place find(const gpu_pool& pool, std::uint32_t gpus, const job_spec& job) {
    const auto look = [&](const free_gpus& free) {
      return facts_of(job).exact_gpus ? find_for_program(free, pool, gpus, job)
                                      : free.find(pool, gpus, {});
    };
    if (auto where = look(idle_); !where.empty()) {
      idle_.take(where);
      return {std::move(where)};
    }
    if (!facts_of(job).malleable) return {};
    for (const bool with_idle : {false, true})
      for (auto& x : ending_) {
        auto free = x.gpus;
        if (with_idle)
          for (const auto n : pool.nodes)
            if (const auto idle = idle_.of(n); idle > 0) free.give_back({{n, idle}});
        auto where = look(free);
        if (where.empty()) continue;
        take(where, x);
        return {in_switch_order(x.job->where, where), &x};
      }
    return {};
  }

 private:
  /// The controller gives it the other job's GPUs of a node first.
  void take(const allocation& where, ending_job& x) {
    for (const auto& share : where) {
      const auto held = std::min(share.gpus, x.gpus.of(share.node));
      x.gpus.take({{share.node, held}});
      idle_.take({{share.node, share.gpus - held}});
    }
  }

  free_gpus idle_;
  std::vector<ending_job> ending_;
};

class titan final : public queue_policy {
 public:
  explicit titan(const titan_options& options)
      : options_{options}, planned_{options.measured}, decided_{options.measured} {}

  const titan_options& options() const { return options_; }

  std::string_view name() const override { return options_.name; }
  policy_traits traits() const override {
    constexpr double gather_s = 2;  // longer than a shell needs to submit several jobs
    if (!options_.merges) return {.uses_measured_rows = true};
    return {.gather_s = gather_s, .merges = options_.merging, .uses_measured_rows = true};
  }
  std::vector<parameter> parameters() override {
    auto& o = options_;
    return {{"aging_s", o.aging_s, 0, 1e9},
            {"lead", o.lead, 0, 1e6},
            {"max_request_factor", o.max_request_factor, 0, 1e6},
            {"start_s", o.start_s, 0, 1e6},
            {"similarity", o.merging.similarity, 0, 1},
            {"duration_ratio", o.merging.duration_ratio, 1, 1e9},
            {"epochs", o.rules.epochs, 1e-3, 1e6},
            {"merge_exponent", o.rules.merge_exponent, 1, 1e3},
            {"updates_an_epoch", o.rules.updates_an_epoch, 1e-3, 1e9},
            {"gap", o.limits.gap, 0, 1},
            {"max_nodes", o.limits.max_nodes, 1, 1e6}};
  }
  void use(const policy_inputs& inputs) override {
    options_.measured = inputs.measured;
    planned_ = decided_ = tuning_tables{inputs.measured};
    if (inputs.around_solve) options_.solve = around(inputs.around_solve, options_.solve);
  }

  bool places(const job_spec& job, bool) const override { return !facts_of(job).pipelines; }

  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planning_budget& budget) const override {
    if (!facts_of(job).malleable)
      return plans_of_one_pool(c, job, policy::plans_of(c, job, budget));
    std::vector<plan> plans;
    for (gpu_index gpu = 0; gpu < c.gpus.size(); ++gpu) add_plans(c, gpu, job, plans);
    if (plans.empty())
      return refuse(kind::infeasible, "no configuration of '{}' fits GPUs of a single type",
                    job.model.name);
    const auto seconds = [&](const plan& p) {
      return static_cast<double>(job.iterations) * job.global_batch / p.samples_per_s;
    };
    const auto price = [&](const plan& p) { return cost_of_run(job, p); };
    if (auto within = drop_beyond_limits(job, plans, seconds, price); !within)
      return refuse(within.error());
    std::ranges::stable_sort(plans, std::greater{}, &plan::samples_per_s);
    return plans;
  }

  /// When the next running job is about to end.
  double decide_again_s(const snapshot& s) const override {
    if (!options_.switches || s.waiting.empty()) return 0;
    double next = 0;
    for_each_ending(s, [&](const job_view& j, double left_s) {
      const double in_s = left_s - lead_s(s, j);
      if (in_s > rounding_s && (next == 0 || in_s < next)) next = in_s;
    });
    return next;
  }

  std::vector<decision> decide(const snapshot& s, random_source&) const override {
    std::vector<decision> out;
    for (const auto& [id, j] : s.waiting) gives_up(j, out);
    auto ending = ending_jobs(s);
    auto made = decide_with(s, ending);
    // The program may want GPUs of several jobs for one that can follow only one of them.
    if (!made.all_placed && ending.size() > 1) {
      ending.resize(1);
      made = decide_with(s, ending);
    }
    std::ranges::move(made.starts, std::back_inserter(out));
    return out;
  }

 private:
  struct placed_starts {
    std::vector<decision> starts;
    bool all_placed = true;  // of the program's answer
  };

  /// On the idle GPUs, and those of the ending jobs.
  placed_starts decide_with(const snapshot& s, const std::vector<ending_job>& ending) const {
    auto idle = s.idle;
    for (const auto& x : ending)
      for (const auto& share : x.job->where)
        idle.set_idle(share.node, idle.idle(share.node) + share.gpus);
    const auto problem = make_tuning_problem(s, idle, options_, decided_);
    placed_starts out;
    if (problem.program.columns.empty()) return out;
    const auto answer = options_.solve(problem.program, options_.limits);
    titan_placer placer{s, ending};
    for (const auto c : largest_first(problem, answer)) {
      auto how = problem.plan_of(c);
      const auto& pool = problem.pools[problem.program.columns[c].pool];
      const auto& first = *problem.jobs[problem.program.columns[c].jobs.front()];
      auto place = placer.find(pool, how.gpus(), *first.spec);
      if (place.where.empty())
        out.all_placed = false;
      else
        out.starts.push_back(start(s, problem, c, std::move(how), std::move(place)));
    }
    return out;
  }

  double lead_s(const snapshot& s, const job_view& j) const {
    return options_.lead * start_s_of(s, options_, *j.spec, j.how);
  }

  /// Calls `f` with running simulated work that no other job follows yet, and the seconds that it
  /// has left.
  template <class F>
  void for_each_ending(const snapshot& s, F f) const {
    for (const auto* views : {&s.running, &s.unions})
      for (const auto& [id, j] : *views)
        if (j.facts().malleable && j.iteration_s > 0 && !j.followed) f(j, left_s_of(s, j));
  }

  /// The first to end first.
  std::vector<ending_job> ending_jobs(const snapshot& s) const {
    std::vector<ending_job> out;
    if (!options_.switches) return out;
    const auto is_unusable = [&](const node_share& share) {
      return std::ranges::binary_search(s.unusable, share.node, {}, &unusable_node::node);
    };
    for_each_ending(s, [&](const job_view& j, double left_s) {
      if (left_s > lead_s(s, j) + rounding_s || !std::ranges::none_of(j.where, is_unusable)) return;
      free_gpus held{s.cluster, idle_index{s.cluster}};
      for (node_index n = 0; n < s.cluster.nodes.size(); ++n)
        if (const auto all = held.of(n); all > 0) held.take({{n, all}});
      held.give_back(j.where);
      out.push_back({&j, left_s, std::move(held)});
    });
    std::ranges::stable_sort(out, {}, &ending_job::left_s);
    return out;
  }

  void add_plans(const cluster& c, gpu_index gpu, const job_spec& job,
                 std::vector<plan>& plans) const {
    const auto max = max_gpus_of(c, job, gpu, options_);
    if (max == 0) return;
    const auto data = data_of(job, options_.rules);
    const auto options = planned_.options_of(c, gpu, job, {});
    for (const auto& [gpus, by_batch] : *options) {
      if (gpus > max) break;
      const auto best = best_configuration(by_batch, data, 0, options_.rules);
      if (!best) continue;
      plan how = best->option->row->how;
      how.bytes_per_gpu = best->option->bytes_per_gpu;
      how.samples_per_s = data.samples / best->duration_s;
      how.gpu_types = {gpu};
      plans.push_back(std::move(how));
    }
  }

  static std::vector<std::size_t> largest_first(const tuning_problem& p,
                                                const titan_answer& answer) {
    auto order = answer.taken;
    std::ranges::stable_sort(order, std::greater{},
                             [&](std::size_t c) { return p.program.columns[c].gpus; });
    return order;
  }

  decision start(const snapshot& s, const tuning_problem& p, std::size_t column, plan how,
                 titan_placer::place place) const {
    const auto jobs =
        mapped(p.program.columns[column].jobs, [&](std::uint32_t j) { return p.jobs[j]; });
    const auto& meaning = p.columns[column];
    TROUPE_INVARIANT(!jobs.empty() && meaning.run_s > 0,
                     "a column that is taken has jobs, and a time that they run");
    auto d = start_job(jobs.front()->id, std::move(how), std::move(place.where));
    const auto& spec = *jobs.front()->spec;
    if (!facts_of(spec).malleable) return d;
    double iterations = iterations_left(s, *jobs.front());
    if (jobs.size() > 1) {
      for (std::size_t i = 1; i < jobs.size(); ++i) d.with.push_back(jobs[i]->id);
      d.kind_of_union = p.kind_of(column);
      const auto work = mapped(jobs, [](const job_view* j) {
        return member_work{j->spec->iterations - j->progress.iterations_done,
                           j->spec->global_batch};
      });
      iterations = static_cast<double>(union_iterations(d.kind_of_union, work));
    }
    d.expected =
        start_estimate{meaning.run_s / iterations, d.how.bytes_per_gpu, false, meaning.start_s};
    if (place.after != nullptr) {
      d.after = place.after->job->id;
      d.expected->start_s = switch_s(s, *place.after, spec, d.how);
    }
    return d;
  }

  /// The start of a job that follows another: what the set-up ahead does not hide.
  double switch_s(const snapshot& s, const ending_job& before, const job_spec& next,
                  const plan& how) const {
    if (options_.start_s) return *options_.start_s;
    auto rates = options_.rates;
    rates.setup_s = s.cluster.settings.restart_s;
    const auto from = bytes_to_switch(before.job->spec->model, before.job->how);
    const auto to = bytes_to_switch(next.model, how);
    const auto& gpu = s.cluster.gpu_of(before.job->where.front().node);
    const bool room = before.job->how.bytes_per_gpu + to.load_per_gpu < gpu.memory_bytes();
    const double ahead_s = rates.setup_s + to.load / rates.disk_bytes_s;
    return std::max(0.0, ahead_s - before.left_s) + pipelined_switch_s(from, to, rates, room);
  }

  reason why_waits(const snapshot& s, const job_view& j) const override {
    if (!has_plans(j)) return why_none(j);
    const auto& fewest =
        *std::ranges::min_element(*j.plans, {}, [](const plan& p) { return p.gpus(); });
    const auto gpu = fewest.gpu_types.empty() ? gpu_index{0} : fewest.gpu_types[0];
    return {kind::insufficient,
            fmt::format("could start on {} {}, of which {} are idle; other jobs make more progress "
                        "on them",
                        fewest.gpus(), s.cluster.gpus[gpu].name, s.idle.idle_of(gpu))};
  }

  titan_options options_;
  tuning_tables planned_, decided_;  // each is asked by one thread
};

}  // namespace

std::optional<titan_options> titan_variant(std::string_view name) {
  titan_options o;
  o.name = name;
  if (name == "titan") return o;
  o.merges = name != "titan-no-merger";
  o.switches = name != "titan-no-switch";
  return o.merges != o.switches ? std::optional{o} : std::nullopt;
}

std::optional<titan_options> titan_options_of(const policy& p) {
  const auto* own = dynamic_cast<const titan*>(&p);
  return own ? std::optional{own->options()} : std::nullopt;
}

std::unique_ptr<policy> make_titan(const titan_options& options) {
  return std::make_unique<titan>(options);
}
std::unique_ptr<policy> make_titan() {
  return make_titan(*titan_variant("titan"));
}
std::unique_ptr<policy> make_titan_no_merger() {
  return make_titan(*titan_variant("titan-no-merger"));
}
std::unique_ptr<policy> make_titan_no_switch() {
  return make_titan(*titan_variant("titan-no-switch"));
}

}  // namespace troupe::planners
