#include "titan/runs.hpp"

#include <algorithm>
#include <utility>

#include "formats/traces/generate.hpp"
#include "harness/must.hpp"
#include "planners/policy/policy.hpp"

// One policy object serves all of its runs: it remembers its lookup table, which costs more than a
// simulation.
std::shared_ptr<const planners::policy> runs::policy_of(const contestant& who) {
  auto& known = policies_[who.name];
  if (known) return known;
  auto options = planners::titan_variant(who.change ? "titan" : who.name);
  if (!options) return known = planners::make_policy(who.name);
  if (who.change) who.change(*options);
  auto& programs = programs_[who.name];
  programs = std::make_shared<studies::solve_log>();
  auto made = planners::make_titan(*options);
  made->use({options->measured, studies::noted_in(programs)});
  return known = std::move(made);
}

const std::vector<arrival>& runs::workload(double density, std::uint64_t seed) {
  auto& known = workloads_[{density, seed}];
  if (known.empty()) {
    formats::titan_workload w;
    w.density = density;
    w.seed = seed;
    known = workload_of(*cluster_, formats::make_titan_trace(w), "titan", seed);
  }
  return known;
}

const one_run& runs::of(const contestant& who, double density, std::uint64_t seed) {
  const auto [at, fresh] = done_.try_emplace({who.name, density, seed});
  auto& r = at->second;
  if (!fresh) return r;
  const auto result = must(
      studies::simulate({cluster_, {}, seed, {}, {}}, workload(density, seed), policy_of(who)));
  double attempts = 0;
  for (const auto& [id, j] : result.record->jobs()) attempts += j.attempts;
  r.record = result.record;
  r.jobs = result.jobs, r.finished = result.finished;
  r.unions = result.merges, r.merged_jobs = result.merged_jobs, r.followers = result.switches;
  r.jct_h = result.average_jct_s / 3600, r.queued_h = result.average_queue_s / 3600;
  r.makespan_h = result.makespan_s / 3600;
  // A union's members start together.
  const double members = static_cast<double>(result.merged_jobs);
  r.start_s = result.switch_s_total / (attempts - members + static_cast<double>(result.merges));
  fmt::print(stderr, "{}, density {:g}, seed {}: {:.2f} s\n", who.name, density, seed,
             result.wall_s);
  return r;
}

double runs::mean(const contestant& who, double density, std::uint64_t seeds,
                  const std::function<double(const one_run&)>& what) {
  double sum = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) sum += what(of(who, density, seed));
  return sum / static_cast<double>(seeds);
}
