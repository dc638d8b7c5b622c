#include "wan/schedules.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/runs.hpp"

namespace troupe::bench {

namespace {

constexpr const char* cluster_file = "clusters/three-sites-tenth.yaml";

struct result {
  double median_s = 0, planned_s = 0, wan_fraction = 0;
  std::vector<double> losses;
};

/// In a directory of its own, whose state is gone afterwards. No losses: it did not train.
result train(const std::string& job_file, const std::string& schedule) {
  const std::filesystem::path configs = TROUPE_BENCH_CONFIGS;
  const scratch in;
  const auto reply = try_troupe(
      in, fmt::format("train '{}' --cluster '{}' --world local --schedule {}",
                      (configs / job_file).string(), (configs / cluster_file).string(), schedule));
  if (!reply || !reply->contains("losses")) return {};
  const auto& s = *reply;
  return {s["iteration_s"]["p50"].get<double>(), s["planned_iteration_s"].get<double>(),
          s["wan_utilization"].get<double>(), s["losses"].get<std::vector<double>>()};
}

void print_job(const std::string& job_file) {
  fmt::print(
      "configs/{} on configs/{}: ten processes, the median of an iteration's seconds; the share of "
      "the WAN that was used.\n\n"
      "| schedule | iteration s | planned s | WAN used | Varuna's / its | last loss |\n"
      "|---|---:|---:|---:|---:|---:|\n",
      job_file, cluster_file);
  double varuna_s = 0;
  std::vector<double> losses;
  bool same = true;
  for (const auto* schedule :
       {"varuna", "varuna-forward-first", "atlas", "atlas-least-progress", "best"}) {
    const auto r = train(job_file, schedule);
    if (r.losses.empty()) {
      fmt::print("| {} | did not train | | | | |\n", schedule);
      continue;
    }
    if (varuna_s == 0) varuna_s = r.median_s;
    if (losses.empty()) losses = r.losses;
    same = same && r.losses == losses;
    fmt::print("| {} | {:.3f} | {:.3f} | {:.0f} % | {:.2f} | {:.6f} |\n", schedule, r.median_s,
               r.planned_s, r.wan_fraction * 100, varuna_s / r.median_s, r.losses.back());
    std::fflush(stdout);
  }
  fmt::print("\nThe losses of all iterations are {} under every schedule.\n",
             same ? "the same, bit for bit," : "NOT the same");
}

}  // namespace

void print_schedules() {
  print_job("jobs/train-across.yaml");
  fmt::print("\n");
  print_job("jobs/train-across-roomy.yaml");
}

}  // namespace troupe::bench
