#include "planners/titan/tuning_problem.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/policy/placement.hpp"
#include "planners/policy/progress.hpp"

namespace troupe::planners {

tuning_job data_of(const job_spec& job, const tuning_rules& rules) {
  const double samples = static_cast<double>(job.iterations) * job.global_batch;
  return {samples, samples / rules.epochs, {}};
}

std::uint32_t max_gpus_of(const cluster& c, const job_spec& job, gpu_index gpu,
                          const titan_options& options) {
  const auto max = max_of_type(c, job, gpu);
  const double asked = options.max_request_factor * job.request.gpus;
  return asked > 0 && asked < max ? static_cast<std::uint32_t>(asked) : max;
}

double start_s_of(const snapshot& s, const titan_options& options, const job_spec& job,
                  const plan& how) {
  if (options.start_s) return *options.start_s;
  auto rates = options.rates;
  rates.setup_s = s.cluster.settings.restart_s;
  const auto bytes = bytes_to_switch(job.model, how);
  return facts_of(job).malleable ? naive_switch_s(bytes, bytes, rates) : rates.setup_s;
}

plan tuning_problem::plan_of(std::size_t column) const {
  const auto& c = columns[column];
  if (c.option == nullptr) return *c.how;
  plan how = c.option->row->how;
  how.bytes_per_gpu = c.option->bytes_per_gpu;
  how.samples_per_s = c.samples / c.run_s;
  how.gpu_types = {pools[program.columns[column].pool].gpu};
  return how;
}

merge_kind tuning_problem::kind_of(std::size_t column) const {
  TROUPE_INVARIANT(column < program.columns.size() && !program.columns[column].jobs.empty(),
                   "a column of the program is of a job");
  return mergeable[program.columns[column].jobs.front()].kind;
}

namespace {

/// The smallest count of the set A that has at least these GPUs: a program may have asked for any
/// number, and the program's rows count places of set A's sizes.
std::uint32_t rounded_up(const std::vector<std::uint32_t>& counts, std::uint32_t gpus) {
  const auto at = std::ranges::lower_bound(counts, gpus);
  return at == counts.end() ? gpus : *at;
}

/// A program that may end at any time counts as one of this length.
constexpr double unknown_length_s = 3600;

/// (5) with weights: 2^priority (1 + waited / aging).
double age_weight(const snapshot& s, const job_view& j, const titan_options& o) {
  const double waited_s = std::max(0.0, s.now_s - j.submitted_s);
  const double age = o.aging_s > 0 ? waited_s / o.aging_s : 0;
  return std::exp2(std::clamp(j.spec->priority, -10, 10)) * (1 + age);
}

/// A job's plans for the pool's type, by number of GPUs; of a program that which its user asked
/// for, or the smallest one.
std::vector<const plan*> plans_on(const gpu_pool& pool, const job_view& j) {
  std::vector<const plan*> out;
  for (const auto& p : *j.plans)
    if (!p.gpu_types.empty() && p.gpu_types[0] == pool.gpu &&
        p.bytes_per_gpu > j.history.bytes_floor)
      out.push_back(&p);
  std::ranges::stable_sort(out, {}, [](const plan* p) { return p->gpus(); });
  if (!j.facts().malleable && !out.empty()) {
    const auto asked =
        std::ranges::find_if(out, [&](const plan* p) { return p->gpus() >= j.spec->request.gpus; });
    out = {asked == out.end() ? out.back() : *asked};
  }
  return out;
}

class problem_maker {
 public:
  problem_maker(const snapshot& s, const idle_index& idle, const titan_options& o,
                const tuning_tables& tables)
      : s_{s}, o_{o}, tables_{tables} {
    out_.pools = pools_of(s.cluster, idle);
    for (const auto& p : out_.pools) {
      titan_pool pool{p.node_gpus, {}};
      for (const auto n : p.nodes)
        if (const auto gpus = idle.idle(n); gpus > 0) pool.idle.push_back(gpus);
      out_.program.pools.push_back(std::move(pool));
      counts_.push_back(titan_counts(p.node_gpus, p.capacity));
    }
  }

  tuning_problem make() {
    for (const auto* j : in_order(s_.waiting))
      if (has_plans(*j)) add_job(*j);
    out_.program.jobs = static_cast<std::uint32_t>(out_.jobs.size());
    if (o_.merges) add_unions();
    return std::move(out_);
  }

 private:
  struct work {
    double samples = 0;  // left
    double rows = 0;     // of the data set
    double weight = 1;
  };
  struct union_run {
    const tuning_option* option = nullptr;
    double run_s = 0, samples = 0;
  };

  void add_job(const job_view& j) {
    const auto number = static_cast<std::uint32_t>(out_.jobs.size());
    out_.jobs.push_back(&j);
    work_.push_back({samples_left(s_, j), data_of(*j.spec, o_.rules).rows, age_weight(s_, j, o_)});
    const auto& [samples, rows, weight] = work_.back();
    double shortest_s = std::numeric_limits<double>::infinity();
    for (std::uint32_t pool = 0; pool < out_.pools.size(); ++pool) {
      const auto& p = out_.pools[pool];
      double best = 0;
      for (const auto* how : plans_on(p, j)) {
        const auto gpus = rounded_up(counts_[pool], how->gpus());
        const double run_s =
            j.facts().has_known_length ? samples / how->samples_per_s : unknown_length_s;
        const double start_s = start_s_of(s_, o_, *j.spec, *how);
        if (how->gpus() <= p.node_gpus) shortest_s = std::min(shortest_s, start_s + run_s);
        // A program cannot choose its number: by GPU, so that narrow ones do not starve wide ones.
        const double parts = j.facts().malleable ? 1 : how->gpus();
        const double value = parts * weight / (start_s + run_s);
        if (gpus > p.capacity || !(value > best)) continue;
        best = value;
        add_column({{number}, pool, gpus, value}, {how, nullptr, run_s, start_s, samples});
      }
    }
    auto m = merge_job_of(j.id, *j.spec, j.owner, j.history.alone);
    m.can = m.can && std::isfinite(shortest_s);
    m.duration_s = m.can ? shortest_s : 1;
    out_.mergeable.push_back(std::move(m));
  }

  void add_column(titan_column c, tuning_column meaning) {
    out_.program.columns.push_back(std::move(c));
    out_.columns.push_back(meaning);
  }

  void add_unions() {
    out_.candidates = merge_candidates(
        out_.mergeable, [&](const merge_candidate& k) { return value_on_a_node(k); }, o_.merging);
    for (const auto& k : out_.candidates)
      for (std::uint32_t pool = 0; pool < out_.pools.size(); ++pool) {
        double best = 0;
        for (const auto gpus : counts_[pool]) {
          const auto run = run_of(k, pool, gpus);
          if (!run || gpus > out_.pools[pool].capacity) continue;
          const double start_s = start_of(k, *run);
          const double value = value_of(k, start_s + run->run_s);
          if (!(value > best)) continue;
          best = value;
          add_column({k.jobs, pool, gpus, value},
                     {nullptr, run->option, run->run_s, start_s, run->samples});
        }
      }
  }

  double start_of(const merge_candidate& k, const union_run& run) const {
    return start_s_of(s_, o_, *out_.jobs[k.jobs.front()]->spec, run.option->row->how);
  }

  /// (5): a union counts as (1 + |k|) / 2 jobs of the mean weight of its members.
  double value_of(const merge_candidate& k, double duration_s) const {
    const double weights = sum_of(k.jobs, [&](std::uint32_t j) { return work_[j].weight; });
    const auto size = static_cast<double>(k.jobs.size());
    return weights / size * (1 + size) / 2 / duration_s;
  }

  double value_on_a_node(const merge_candidate& k) {
    double best = 0;
    for (std::uint32_t pool = 0; pool < out_.pools.size(); ++pool)
      if (const auto run = run_of(k, pool, out_.pools[pool].node_gpus))
        best = std::max(best, value_of(k, start_of(k, *run) + run->run_s));
    return best;
  }

  const tuning_tables::by_gpus& options_for(std::uint32_t job, gpu_index gpu) {
    auto& known = options_[{out_.mergeable[job].alike, gpu}];
    if (known == nullptr) {
      out_.options.push_back(tables_.options_of(s_.cluster, gpu, *out_.jobs[job]->spec, {}));
      known = out_.options.back().get();
    }
    return *known;
  }

  /// The run of a union on a number of GPUs; none: it cannot run there.
  std::optional<union_run> run_of(const merge_candidate& k, std::uint32_t pool,
                                  std::uint32_t gpus) {
    const auto gpu = out_.pools[pool].gpu;
    for (const auto j : k.jobs)
      if (max_gpus_of(s_.cluster, *out_.jobs[j]->spec, gpu, o_) < gpus) return {};
    const auto& by_count = options_for(k.jobs.front(), gpu);
    const auto options = by_count.find(gpus);
    if (options == by_count.end()) return {};
    return out_.mergeable[k.jobs.front()].kind == merge_kind::shared
               ? shared_run(k, options->second)
               : adapters_run(k, options->second);
  }

  /// One model from the union of the data.
  std::optional<union_run> shared_run(const merge_candidate& k,
                                      std::span<const tuning_option> options) const {
    const auto each = mapped(k.jobs, [&](std::uint32_t j) { return work_[j].samples; });
    const tuning_job data{merged_samples(each, o_.rules),
                          sum_of(k.jobs, [&](std::uint32_t j) { return work_[j].rows; }),
                          {}};
    const auto best = best_configuration(options, data, 0, o_.rules);
    if (!best) return {};
    return union_run{best->option, best->duration_s, data.samples};
  }

  /// Each member's iterations, one after another: they share the start and the base's memory.
  std::optional<union_run> adapters_run(const merge_candidate& k,
                                        std::span<const tuning_option> options) const {
    union_run out;
    for (const auto j : k.jobs) {
      const auto best =
          best_configuration(options, {work_[j].samples, work_[j].rows, {}}, 0, o_.rules);
      if (!best) return {};
      if (out.option == nullptr || best->option->bytes_per_gpu > out.option->bytes_per_gpu)
        out.option = best->option;
      out.run_s += best->duration_s;
      out.samples += work_[j].samples;
    }
    return out;
  }

  const snapshot& s_;
  const titan_options& o_;
  const tuning_tables& tables_;
  tuning_problem out_;
  std::vector<std::vector<std::uint32_t>> counts_;  // by pool
  std::vector<work> work_;                          // by job
  std::map<std::pair<std::string, gpu_index>, const tuning_tables::by_gpus*> options_;
};

}  // namespace

tuning_problem make_tuning_problem(const snapshot& s, const idle_index& idle,
                                   const titan_options& options, const tuning_tables& tables) {
  ++searches_made;
  return problem_maker{s, idle, options, tables}.make();
}

}  // namespace troupe::planners
