#include "wan/schedules.hpp"

#include <fmt/format.h>
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace troupe::bench {

namespace {

constexpr const char* cluster_file = "clusters/three-sites-tenth.yaml";

struct result {
  double median_s = 0, planned_s = 0, wan_share = 0;
  std::vector<double> losses;
};

/// In a directory of its own, whose state is gone afterwards. No losses: it did not train.
result train(const std::string& job_file, const std::string& schedule) {
  namespace fs = std::filesystem;
  auto directory = (fs::temp_directory_path() / "troupe-XXXXXX").string();
  if (::mkdtemp(directory.data()) == nullptr) return {};
  const fs::path configs = TROUPE_BENCH_CONFIGS;
  const auto command =
      fmt::format("cd '{}' && '{}' train '{}' --cluster '{}' --world local --schedule {} --json",
                  directory, TROUPE_BENCH_PROGRAM, (configs / job_file).string(),
                  (configs / cluster_file).string(), schedule);
  std::string text;
  if (std::FILE* out = ::popen(command.c_str(), "r")) {
    std::string piece(4096, '\0');
    while (const auto n = std::fread(piece.data(), 1, piece.size(), out)) text.append(piece, 0, n);
    ::pclose(out);
  }
  std::error_code ignored;
  fs::remove_all(directory, ignored);
  const auto said = nlohmann::json::parse(text, nullptr, false);
  if (!said.is_object() || !said.contains("losses")) return {};
  return {said["iteration_s"]["p50"].get<double>(), said["planned_iteration_s"].get<double>(),
          said["wan_utilization"].get<double>(), said["losses"].get<std::vector<double>>()};
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
               r.planned_s, r.wan_share * 100, varuna_s / r.median_s, r.losses.back());
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
