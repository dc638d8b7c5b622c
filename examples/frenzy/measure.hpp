#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "harness/figures.hpp"
#include "messages/base/random.hpp"
#include "studies/workload_simulation.hpp"

// Shared by the figures: a workload under some policies, compared over the jobs that all of them
// finish.

using namespace troupe;  // an example's own header
using results = std::vector<studies::policy_result>;

/// Each policy in turn; "fastest" is Frenzy with MARP's plans ranked by speed.
inline results run(std::shared_ptr<const cluster> c, const std::vector<formats::trace_row>& rows,
                   std::uint64_t seed, std::initializer_list<const char*> policies) {
  results out;
  auto jobs = workload_of(*c, rows, "frenzy", seed);
  for (const std::string name : policies) {
    const bool fastest = name == "fastest";
    for (auto& job : jobs) job.spec.objective = fastest ? "fastest" : "efficient";
    out.push_back(must(studies::simulate({c, fastest ? "frenzy" : name, seed, {}, {}}, jobs)));
  }
  return out;
}

/// Averages of one policy over the jobs that all the policies finish.
struct averages {
  double jobs = 0, queue_s = 0, jct_s = 0;
  double speed = 0, progress = 0;  // samples a second with GPUs, and since submission
};

inline averages over_common(const results& all, std::size_t which) {
  averages a;
  for (const auto& [id, job] : all[which].record->jobs()) {
    if (!std::ranges::all_of(
            all, [i = id](auto& r) { return r.record->jobs().at(i).state == job_state::finished; }))
      continue;
    a.jobs += 1;
    a.speed += job.samples / job.held_s;
    a.progress += job.samples / job.completion_s();
    a.queue_s += job.queued_s();
    a.jct_s += job.completion_s();
  }
  return {a.jobs, a.queue_s / a.jobs, a.jct_s / a.jobs, a.speed / a.jobs, a.progress / a.jobs};
}

/// A change in per cent: of the sums over all seeds; then the mean, least and most of the seeds'
/// own changes. (The two differ where in some seeds hardly any job waits.)
struct change {
  double ours = 0, theirs = 0, sum = 0, min = 1e300, max = -1e300;
  int seeds = 0;
  void add(double our, double their) {
    const double percent = 100 * (our / their - 1);
    ours += our, theirs += their, sum += percent, seeds += 1;
    min = std::min(min, percent), max = std::max(max, percent);
  }
  std::string text() const {
    return fmt::format("{:+.1f} % ({:+.1f}; {:+.1f} to {:+.1f})", 100 * (ours / theirs - 1),
                       sum / seeds, min, max);
  }
};

/// NewWorkload: the paper gives only the number of tasks. Here: 1, 2 or 4 GPUs (4 : 2 : 1) for
/// 10 minutes to 2 hours (log-uniform), `gap_s` apart on average (exponential); models by the rule.
inline std::vector<formats::trace_row> new_workload(int tasks, double gap_s, std::uint64_t seed) {
  random_source random{seed};
  std::vector<formats::trace_row> rows(static_cast<std::size_t>(tasks));
  double at_s = 0;
  for (auto& row : rows) {
    row.job_id = fmt::format("task-{}", &row - rows.data());
    row.submit_s = at_s;
    row.duration_s = 600 * std::pow(12, random.uniform());
    const auto draw = random.below(7);
    row.gpus = draw < 4 ? 1 : draw < 6 ? 2 : 4;
    at_s -= gap_s * std::log(1 - random.uniform());
  }
  return rows;
}

/// Figure 5b: five policies for a trace.
inline void figure5b(const std::string& trace, const std::string& cluster,
                     const std::vector<formats::trace_row>& rows, std::uint64_t seeds) {
  const std::initializer_list<const char*> policies{"frenzy", "fastest", "sia", "opportunistic",
                                                    "fcfs"};
  std::vector<averages> own(5), common(5);
  std::vector<double> failed(5);
  change sia[2];
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const auto r = run(cluster_named(cluster), rows, seed, policies);
    for (std::size_t i = 0; i < 5; ++i) {
      const auto a = over_common(r, i);
      common[i].jobs += a.jobs / seeds, common[i].jct_s += a.jct_s / seeds;
      own[i].jct_s += r[i].average_jct_s / seeds, own[i].queue_s += r[i].average_queue_s / seeds;
      failed[i] += double(r[i].failed) / seeds;
    }
    for (const std::size_t i : {0, 1}) {
      const results two{r[i], r[2]};
      sia[i].add(over_common(two, 0).jct_s, over_common(two, 1).jct_s);
    }
  }
  fmt::print("{}: {} jobs on {}, mean of seeds 1 to {}\n", "Figure 5b, " + trace, rows.size(),
             cluster, seeds);
  fmt::print("  {:14}{:>10}{:>12}{:>12}   JCT s of the {:.0f} that all finish\n", "policy",
             "failed", "JCT s", "queued s", common[0].jobs);
  for (std::size_t i = 0; i < 5; ++i)
    fmt::print("  {:14}{:10.1f}{:12.0f}{:12.0f}{:12.0f}\n", policies.begin()[i], failed[i],
               own[i].jct_s, own[i].queue_s, common[i].jct_s);
  fmt::print("  against sia, jobs that both finish: frenzy {}, fastest {}; paper: about -12 %\n\n",
             sia[0].text(), sia[1].text());
  compared.push_back({"5b: JCT against Sia, " + trace + ", " + cluster, "about -12 %",
                      sia[0].text(),
                      "Sia grows jobs into idle GPUs and restarts them; Frenzy does neither"});
}
