// Sia (Jayaram Subramanya et al., SOSP 2023; docs/planners/baselines.md): every 60 s an integer
// program over all jobs, then a placement of the resulting counts. The program decides counts of
// GPUs of a type; nodes come afterwards, because counts of powers of two can always be packed.

#include "planners/baselines/sia.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cluster/queue_order.hpp"

namespace troupe::planners {
namespace {

using kind = reason::kind;

// A job's result of the program and its placement.
struct grant {
  const job_view* job = nullptr;
  const sia_choice* choice = nullptr;
  bool present = false;  // its present configuration
  allocation where;      // empty: not placed
};

// Assigns a group's result to its jobs: present configurations to the oldest, then the cheapest
// ones. The program does not distinguish equal jobs, so that any assignment is optimal; this one
// moves none without need, and favours age.
std::vector<grant> grants_of(const sia_problem& problem, const sia_answer& answer) {
  std::vector<grant> out;
  for (std::size_t g = 0; g < problem.groups.size(); ++g) {
    const auto& group = problem.groups[g];
    std::vector<std::size_t> order(group.choices.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) {
      return std::pair(i != group.present, group.choices[i].cost);
    });
    std::size_t next = 0;
    for (const auto c : order)
      for (std::uint32_t k = 0; k < answer.taken[g][c]; ++k)
        out.push_back({group.jobs[next++], &group.choices[c], c == group.present, {}});
  }
  std::ranges::sort(out, {}, [](const grant& g) {
    return std::pair(-std::int64_t{g.choice->how.gpus()}, g.job->id);
  });
  return out;
}

// Places counts on nodes, the largest first.
void place_all(const sia_problem& problem, std::vector<grant>& grants) {
  std::vector<count_grant> counts;
  for (const auto& g : grants)
    counts.push_back({g.choice->pool, g.choice->how.gpus(), &g.job->where, g.present,
                      g.job->facts().exact_gpus});
  auto room = problem.room;
  place_counts(problem.pools, counts, room);
  for (std::size_t i = 0; i < grants.size(); ++i) grants[i].where = std::move(counts[i].where);
  // A job that was to change and could not be placed keeps its GPUs, if they are still free.
  for (auto& g : grants)
    if (g.where.empty() && !g.job->where.empty() && room.has(g.job->where)) {
      room.take(g.where = g.job->where);
      g.present = true;
    }
}

class sia : public queue_policy {
 public:
  explicit sia(const sia_options& options) : options_{options} {}

  std::string_view name() const override { return "sia"; }
  policy_traits traits() const override { return {.round_s = 60}; }
  std::vector<parameter> parameters() override {
    auto& o = options_;
    return {{"fairness_power", o.fairness_power, -100, 100},
            {"unassigned", o.unassigned, 0, 1e6},
            {"change", o.change, 0, 1e6},
            {"min_restart_factor", o.min_restart_factor, 0, 1},
            {"max_waiting", o.max_waiting, 1, 1e6},
            {"gap", o.gap, 0, 1},
            {"max_nodes", o.max_nodes, 1, 1e6}};
  }

  std::vector<decision> decide(const snapshot& s, random_source&) const override {
    std::vector<decision> out;
    if (s.waiting.empty() && s.running.empty()) return out;
    auto problem = make_sia_problem(s, options_);
    for (const auto* j : problem.hopeless) out.push_back(give_up(j->id, why_hopeless(*j)));
    note_waiting(s, problem);
    if (nothing_to_gain(problem)) return out;
    auto round = solve_sia_round(s, std::move(problem), options_);
    if (round.answer.unsolved) return out;  // all keep their GPUs
    auto grants = grants_of(round.problem, round.answer);
    place_all(round.problem, grants);
    std::ranges::sort(grants, {}, [](const grant& g) { return g.job->id; });

    std::set<job_id> stays;
    std::vector<decision> starts;
    for (auto& m : round.granted)
      if (!m.job->where.empty())
        stays.insert(m.job->id);
      else
        starts.push_back(start_job(m.job->id, std::move(m.how), std::move(m.where)));
    for (auto& g : grants) {
      if (g.where.empty()) continue;
      const bool runs = !g.job->where.empty();
      if (runs && same_nodes(g.where, g.job->where) &&
          (g.present || same(g.choice->how, g.job->how)))
        stays.insert(g.job->id);
      else
        starts.push_back(start_job(g.job->id, g.choice->how, std::move(g.where)));
    }
    for (const auto& [id, j] : s.running)
      if (!stays.contains(id) && !keeps_gpus(j)) out.push_back(stop_job(id));
    std::ranges::move(starts, std::back_inserter(out));
    return out;
  }

 private:
  /// On how many GPUs of which type each job could start, since one that runs may be stopped;
  /// too_few: it needs several pools.
  static void note_waiting(const snapshot& s, const sia_problem& problem) {
    if (!s.notes) return;
    for (const auto& x : problem.mixed) s.note(x.job->id, wait_code::too_few);
    for (const auto& g : problem.groups) {
      const auto& x =
          *std::ranges::min_element(g.choices, {}, [](const auto& y) { return y.how.gpus(); });
      for (const auto* j : g.jobs)
        s.note(j->id, wait_code::outranked, x.how.gpus(), problem.pools[x.pool].gpu);
    }
  }

  reason why_waits(const snapshot& s, const job_view& j) const override {
    if (!has_plans(j)) return why_hopeless(j);
    const auto* note = s.note_of(j.id);
    if (note && note->code == wait_code::too_few) return why_mixed_waits(s, j);
    if (note) {
      const auto gpu = static_cast<gpu_index>(note->second);
      return because(kind::insufficient,
                     "could start on {} {}, of which {} are idle; earlier rounds assigned "
                     "them to other jobs",
                     static_cast<std::uint32_t>(note->first), s.cluster.gpus[gpu].name,
                     s.idle.idle_of(gpu));
    }
    if (s.waiting.size() <= options_.max_waiting) return not_decided_yet();
    return because(kind::insufficient, "queued behind the {} jobs that one round considers",
                   options_.max_waiting);
  }

  static reason why_mixed_waits(const snapshot& s, const job_view& j) {
    const auto min = std::ranges::find_if(
        *j.plans, [&](const plan& p) { return p.bytes_per_gpu > j.history.bytes_floor; });
    return because(kind::insufficient,
                   "no pool can hold it; of several pools it needs {} GPUs of at least {:.1f} "
                   "GB, of which {} are idle",
                   min->gpus(), min->bytes_per_gpu / bytes_per_gb,
                   s.idle.idle_above(min->bytes_per_gpu));
  }
  static reason why_hopeless(const job_view& j) {
    if (!j.why.text.empty()) return why_none(j);
    return {
        kind::infeasible,
        j.history.bytes_floor > 0
            ? fmt::format("ran out of memory at {:.1f} GB per GPU, and no configuration has more",
                          j.history.bytes_floor / bytes_per_gb)
            : std::string("it fits no configuration of a pool, nor GPUs of several")};
  }
  static bool same(const plan& a, const plan& b) {
    return a.data_parallel == b.data_parallel && a.tensor_parallel == b.tensor_parallel &&
           a.pipeline_parallel == b.pipeline_parallel;
  }

  sia_options options_;
};

}  // namespace

std::unique_ptr<policy> make_sia(const sia_options& options) {
  return std::make_unique<sia>(options);
}

std::unique_ptr<policy> make_sia() {
  return make_sia(sia_options{});
}

}  // namespace troupe::planners
