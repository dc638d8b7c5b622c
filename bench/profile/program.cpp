#include "program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "harness/foreign_load.hpp"
#include "harness/runs.hpp"

namespace troupe::bench {

namespace {

using nlohmann::json;

constexpr double max_percent = 7, max_over_ideal = 1.1, min_over_ideal_by_number = 1.4;
constexpr int microbatches = 4, iterations = 16, rows = 3, layers = 24;

const std::string program = TROUPE_SOURCE "/bench/profile/unequal.py";

std::string python() {
  const char* named = std::getenv("TROUPE_PYTHON");
  return named ? named : "/usr/bin/python3";
}

/// Two nodes of one datacenter, whose device is one core each.
constexpr const char* cluster_text =
    "name: near\ndatacenters:\n  - name: here\n    nodes:\n"
    "      - {name: a, gpu: T4, gpus: 1, intra: pcie3, inter: eth10}\n"
    "      - {name: b, gpu: T4, gpus: 1, intra: pcie3, inter: eth10}\n"
    "settings: {heartbeat_s: 0.2, lease_s: 5, restart_s: 1}\n";

/// `cut`: of two stages; empty: the planner's.
std::string job_text(int stages, const std::string& cut) {
  return fmt::format(
      "name: run\nglobal_batch: {}\niterations: {}\n"
      "train: {{program: {}, python: {}, seed: 1, schedule: varuna, device: cpu}}\n"
      "pipeline: {{stages: {}, data_parallel: 1, microbatches: {}, recompute: false{}}}\n",
      rows * microbatches, iterations, program, python(), stages, microbatches,
      cut.empty() ? "" : ", cut: " + cut);
}

/// The rows between those that the training has.
std::string profile(const scratch& in, int busy) {
  const auto name = fmt::format("profile-{}.yaml", busy);
  troupe_json(in, fmt::format("profile --program '{}' --python '{}' --rows 2,4 --busy {} --rounds "
                              "9 --device cpu --out {}",
                              program, python(), busy, name));
  return in.path(name);
}

json trained(const scratch& in, const std::string& words) {
  return troupe_json(in, "train --world local " + words);
}

/// The load of others in half a second without a run. It cannot be measured during a run: keepers
/// and workers are not children of this process.
double load_between_runs() {
  const foreign_load load;
  std::this_thread::sleep_for(std::chrono::milliseconds{500});
  return load.percent();
}

/// The slowest stage's measured time per micro-batch over the mean of both.
double over_ideal(const json& training) {
  double slowest = 0, sum = 0;
  for (const auto& s : training["stages"]) {
    const double stage_s = s["forward_s"].get<double>() + s["backward_s"].get<double>();
    slowest = std::max(slowest, stage_s);
    sum += stage_s;
  }
  return slowest * static_cast<double>(training["stages"].size()) / sum;
}

struct outcome {
  std::vector<double> estimated_ms, virtual_ms, measured_ms, percent, virtual_percent;
};

json run(const scratch& in, int stages, const std::string& cluster, const std::string& profiled,
         outcome& o) {
  const auto job = in.write(fmt::format("job-{}.yaml", stages), job_text(stages, ""));
  const auto how = fmt::format("'{}' --cluster '{}' --profile '{}'", job, cluster, profiled);
  const auto ms = [](const json& s) { return 1e3 * s.get<double>(); };
  const double estimated = ms(troupe_json(in, "plan " + how)["estimate"]["iteration_s"]);
  const double virtually =
      ms(troupe_json(in, "train --world virtual " + how)["iteration_s"]["p50"]);
  auto training = trained(in, how);  // with the profile's cut
  const double measured = ms(training["iteration_s"]["p50"]);
  o.estimated_ms.push_back(estimated);
  o.virtual_ms.push_back(virtually);
  o.measured_ms.push_back(measured);
  o.percent.push_back(100 * (estimated / measured - 1));
  o.virtual_percent.push_back(100 * (virtually / measured - 1));
  fmt::print(stderr, "{} stages: estimator {:+.1f} %, virtual {:+.1f} %\n", stages,
             o.percent.back(), o.virtual_percent.back());
  return training;
}

}  // namespace

int profile_program(int rounds, bool as_json) {
  const scratch in;
  const auto cluster = in.write("near.yaml", cluster_text);
  outcome all[2];
  std::vector<double> by_time, by_number, foreign;
  for (int r = 0; r < rounds; ++r)
    for (const int stages : {1, 2}) {
      foreign.push_back(load_between_runs());
      // The machine's speed may change over minutes: measured just before the training.
      const auto training = run(in, stages, cluster, profile(in, stages), all[stages - 1]);
      if (stages == 1) continue;
      by_time.push_back(over_ideal(training));
      const auto job = in.write("even.yaml", job_text(2, fmt::format("[{0}, {0}]", layers / 2)));
      by_number.push_back(
          over_ideal(trained(in, fmt::format("'{}' --cluster '{}'", job, cluster))));
    }
  json result{{"rounds", rounds}, {"foreign_percent", std::round(median(foreign))}};
  double error = 0, virtual_error = 0;
  for (int i = 0; i < 2; ++i) {
    const auto& o = all[i];
    error = std::max(error, std::abs(median(o.percent)));
    virtual_error = std::max(virtual_error, std::abs(median(o.virtual_percent)));
    result["trainings"].push_back({{"stages", i + 1},
                                   {"estimator_ms", median(o.estimated_ms)},
                                   {"virtual_ms", median(o.virtual_ms)},
                                   {"measured_ms", median(o.measured_ms)},
                                   {"estimator_percent", median(o.percent)},
                                   {"of_the_rounds", o.percent},
                                   {"virtual_percent", median(o.virtual_percent)}});
  }
  result["estimator_error"] = error / 100;
  result["virtual_error"] = virtual_error / 100;
  result["slowest_over_ideal"] = median(by_time);
  result["by_number_over_ideal"] = median(by_number);
  const bool good = error <= max_percent && median(by_time) <= max_over_ideal &&
                    median(by_number) >= min_over_ideal_by_number;
  if (as_json) {
    fmt::print("{}\n", result.dump());
  } else {
    for (const auto& t : result["trainings"])
      fmt::print(
          "{} stages: estimator {:.0f} ms, virtual {:.0f} ms, measured {:.0f} ms: {:+.1f} "
          "and {:+.1f} %\n",
          t["stages"].get<int>(), t["estimator_ms"].get<double>(), t["virtual_ms"].get<double>(),
          t["measured_ms"].get<double>(), t["estimator_percent"].get<double>(),
          t["virtual_percent"].get<double>());
    fmt::print(
        "the slowest stage takes {:.2f} of the mean, cut by equal numbers {:.2f}; medians of {} "
        "rounds, {:.0f} % foreign load\n{}\n",
        median(by_time), median(by_number), rounds, median(foreign),
        good ? "within the limits" : "not within the limits");
  }
  return good ? 0 : 1;
}

}  // namespace troupe::bench
