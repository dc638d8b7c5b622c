// Table 2 and Figures 3 and 4, and the lookup table: all that needs no simulation.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "formats/traces/generate.hpp"
#include "harness/must.hpp"
#include "planners/titan/switch_time.hpp"
#include "planners/titan/titan_problem.hpp"
#include "planners/titan/tuning_tables.hpp"
#include "titan/figures.hpp"

namespace {

using planners::titan_counts;

/// A fine-tuning job of the paper's model.
job_spec vit_job() {
  job_spec job;
  job.name = "vit";
  job.model = model_named("vit-large-16");
  return job;
}

std::shared_ptr<const planners::tuning_tables::by_gpus> table_of(
    const cluster& c, const planners::tuning_tables& tables) {
  return tables.options_of(c, 0, vit_job(), {});
}

/// The share of durations up to a number of minutes, in %.
double share_within(const std::vector<double>& durations_s, double minutes) {
  const auto within =
      std::ranges::count_if(durations_s, [&](double s) { return s <= minutes * 60; });
  return 100 * static_cast<double>(within) / static_cast<double>(durations_s.size());
}

/// Durations of the jobs that the paper keeps, and how many of them ask for several GPUs.
struct kept_jobs {
  std::vector<double> durations_s;
  double several = 0;  // in %
};
kept_jobs kept(const std::vector<formats::trace_row>& rows) {
  kept_jobs k;
  std::size_t several = 0;
  for (const auto& row : rows) {
    if (row.duration_s < 300 || row.duration_s > 36'000) continue;
    k.durations_s.push_back(row.duration_s);
    several += row.gpus > 1;
  }
  k.several = 100 * static_cast<double>(several) / static_cast<double>(k.durations_s.size());
  return k;
}

void print_kept(const char* name, const kept_jobs& k) {
  fmt::print("  {:22}{:7}", name, k.durations_s.size());
  for (const double minutes : {10, 30, 60, 180})
    fmt::print("{:8.0f}", share_within(k.durations_s, minutes));
  fmt::print("{:13.0f}\n", k.several);
}

}  // namespace

void lookup_table() {
  const auto c = cluster_named("titan");
  const planners::tuning_tables tables{nullptr};
  const auto options = table_of(*c, tables);
  fmt::print(
      "The lookup table (4.1), by the cost model: samples/s of ViT-Large/16 on V100-32GB, the "
      "fastest\n"
      "of 1, 2, 4, 8 micro-batches, both precisions, with and without recomputation. GB of a GPU: "
      "at\n"
      "the largest batch\n\n");
  bool header = true;
  for (const auto& [gpus, by_batch] : *options) {
    if ((gpus & (gpus - 1)) != 0) continue;
    if (std::exchange(header, false)) {
      fmt::print("  {:>5}", "GPUs");
      for (const auto& o : by_batch) fmt::print("{:>8}", fmt::format("m {}", o.shape.batch));
      fmt::print("{:>8}{:>18}\n", "GB", "data x tensor");
    }
    fmt::print("  {:5}", gpus);
    for (const auto& o : by_batch) fmt::print("{:8.0f}", o.shape.batch / o.iteration_s);
    const auto& last = by_batch.back();
    fmt::print("{:8.1f}{:>18}\n", last.bytes_per_gpu / 1e9,
               fmt::format("{} x {}", last.row->how.data_parallel, last.row->how.tensor_parallel));
  }
}

void table2() {
  const struct {
    double a, b, merged, srtf;
    bool merges;
  } paper[] = {{20, 20, 25, 30, true}, {10, 20, 21, 20, false}, {5, 100, 102, 55, false}};
  fmt::print(
      "\nTable 2: average JCT of two jobs in minutes, merged and one after the other; (5) on one "
      "GPU\n\n"
      "  {:>6}{:>6}{:>16}{:>16}{:>24}\n",
      "A", "B", "merged, paper", "here", "SRTF, paper / here");
  double worst = 0;
  bool all = true;
  for (const auto& p : paper) {
    const double each[] = {p.a, p.b};
    const double merged = planners::merged_samples(each);
    const double srtf = (p.a + p.a + p.b) / 2;
    const planners::titan_problem problem{
        2, {{1, {1}}}, {{{0}, 0, 1, 1 / p.a}, {{1}, 0, 1, 1 / p.b}, {{0, 1}, 0, 1, 1.5 / merged}}};
    const bool merges = planners::solve_titan(problem).taken == std::vector<std::size_t>{2};
    fmt::print("  {:6}{:6}{:16}{:16.1f}{:>24}   {}\n", p.a, p.b, p.merged, merged,
               fmt::format("{} / {}", p.srtf, srtf), merges ? "merged" : "apart");
    worst = std::max(worst, std::abs(merged / p.merged - 1));
    all = all && merges == p.merges;
  }
  compared.push_back({"Table 2: duration of merged jobs", "25, 21, 102 min",
                      fmt::format("at most {:.1f} % off", 100 * worst),
                      "one exponent, which the first case fixes"});
  compared.push_back({"Table 2: the better choice", "merged, (apart), apart",
                      all ? "merged, apart, apart" : "others",
                      "the paper calls the second a draw"});
}

void figure3() {
  const auto c = cluster_named("titan");
  const planners::tuning_tables tables{nullptr};
  const auto options = table_of(*c, tables);
  const auto model = vit_job().model;
  planners::switch_rates rates;
  rates.setup_s = c->settings.restart_s;
  fmt::print("\nFigure 3: a switch from one job to another, s\n\n  {:>5}{:>10}{:>12}\n", "GPUs",
             "naive", "pipelined");
  for (const std::uint32_t gpus : {2, 4, 8}) {
    const auto bytes = planners::bytes_to_switch(model, options->at(gpus).back().row->how);
    const double naive = planners::naive_switch_s(bytes, bytes, rates);
    const double pipelined = planners::pipelined_switch_s(bytes, bytes, rates, true);
    fmt::print("  {:5}{:10.1f}{:12.1f}\n", gpus, naive, pipelined);
    if (gpus == 8)
      compared.push_back({"3: a switch on 8 GPUs, naive, pipelined", "46 s, a bar",
                          fmt::format("{:.1f}, {:.1f} s", naive, pipelined),
                          "the first is fitted; in the second a worker is set up ahead"});
  }
}

void figure4() {
  std::vector<formats::trace_row> made;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    formats::titan_workload w;
    w.seed = seed;
    std::ranges::copy(formats::make_titan_trace(w), std::back_inserter(made));
  }
  fmt::print(
      "\nFigure 4: jobs of 5 minutes to 10 hours; % whose duration is at most these minutes, and "
      "that ask\n"
      "for several GPUs\n\n  {:22}{:>7}{:>8}{:>8}{:>8}{:>8}{:>13}\n",
      "", "jobs", "10", "30", "60", "180", "several GPUs");
  const auto ours = kept(made);
  print_kept("made, 20 seeds", ours);
  print_kept("Philly, one day", kept(trace_named("philly-day")));
  compared.push_back({"4: jobs within 30 minutes", "more than 50 %",
                      fmt::format("{:.0f} %", share_within(ours.durations_s, 30)),
                      "FMTrace is not published: made to be so"});
}
