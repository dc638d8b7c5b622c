// bench_profile [ROUNDS] [--program [--json]]: profiles a core, predicts from that what an
// iteration of trainings takes that were not measured, and runs them as processes on this machine.
// A round is a profile and a run of each. Prints both; ends with 1 if the estimator and a training
// differ by more than 7 %.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/runs.hpp"
#include "program.hpp"

using namespace troupe::bench;

namespace {

using nlohmann::json;

constexpr double max_percent = 7;
constexpr int microbatches = 4, iterations = 8;
// A profile or a run with more is made again, up to three times: the machine was disturbed.
constexpr double max_spread = 0.1, max_uneven = 1.3;
constexpr int max_tries = 3;

struct training {
  const char* what;
  int layers, stages, rows;
};
/// Profiled are 2 and 4 rows, and nothing of this many layers.
const std::vector<training> trainings{
    {"rows that were measured", 4, 1, 2}, {"the most that were", 4, 1, 4},
    {"between two that were", 6, 1, 3},   {"two stages", 4, 2, 2},
    {"two stages, between", 5, 2, 3},
};

std::string model_text(int layers) {
  return fmt::format(
      "{{name: small, family: gpt, hidden: 256, layers: {}, heads: 4, sequence: 256, vocabulary: "
      "256}}\n",
      layers);
}

std::string job_text(const training& t) {
  return fmt::format(
      "name: run\nmodel: {}global_batch: {}\niterations: {}\n"
      "train: {{data: {}, seed: 1, schedule: varuna, device: cpu}}\n"
      "pipeline: {{stages: {}, data_parallel: 1, microbatches: {}}}\n",
      model_text(t.layers), t.rows * microbatches, iterations, TROUPE_BENCH_DATA, t.stages,
      microbatches);
}

/// Two nodes of one datacenter, whose device is one core each.
constexpr const char* cluster_text =
    "name: near\ndatacenters:\n  - name: here\n    nodes:\n"
    "      - {name: a, gpu: T4, gpus: 1, intra: pcie3, inter: eth10}\n"
    "      - {name: b, gpu: T4, gpus: 1, intra: pcie3, inter: eth10}\n"
    "settings: {heartbeat_s: 0.2, lease_s: 5, restart_s: 1}\n";

/// How much its sublayers' times varied.
double spread_of(const json& profile) {
  double max = 0;
  for (const auto& point : profile["models"][0]["points"])
    for (const auto* part : {"attention", "mlp"})
      max = std::max(max, point[part]["spread"].get<double>());
  return max;
}

/// The profile of a core while `busy` cores compute.
std::string profile(const scratch& in, int busy) {
  const auto name = fmt::format("profile-{}.yaml", busy);
  const auto words = fmt::format("profile --model '{}' --rows 2,4 --busy {} --rounds 5 --out {}",
                                 in.write("small.yaml", model_text(4)), busy, name);
  for (int tries = 1; spread_of(troupe_json(in, words)) > max_spread && tries < max_tries;) ++tries;
  return in.path(name);
}

/// A training's median iteration, as processes.
json trained(const scratch& in, const std::string& words) {
  for (int tries = 1;; ++tries) {
    const auto s = troupe_json(in, "train --world local " + words)["iteration_s"];
    if (s["p99"].get<double>() <= max_uneven * s["p50"].get<double>() || tries == max_tries)
      return s["p50"];
  }
}

/// The results of one training, by round.
struct outcome {
  std::vector<double> estimated_ms, virtual_ms, measured_ms, estimated_percent, virtual_percent;
};

void run(const scratch& in, const training& t, const std::string& cluster,
         const std::string& profiled, outcome& o) {
  const auto how = fmt::format("'{}' --cluster '{}'", in.write("job.yaml", job_text(t)), cluster);
  const auto from = fmt::format("{} --profile '{}'", how, profiled);
  const auto ms = [](const json& s) { return 1e3 * s.get<double>(); };
  const double estimated = ms(troupe_json(in, "plan " + from)["estimate"]["iteration_s"]);
  const double virtually =
      ms(troupe_json(in, "train --world virtual " + from)["iteration_s"]["p50"]);
  const double measured = ms(trained(in, how));
  o.estimated_ms.push_back(estimated);
  o.virtual_ms.push_back(virtually);
  o.measured_ms.push_back(measured);
  o.estimated_percent.push_back(100 * (estimated / measured - 1));
  o.virtual_percent.push_back(100 * (virtually / measured - 1));
  fmt::print(stderr, "{}: {:+.1f} %\n", t.what, o.estimated_percent.back());
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 0;
  bool of_program = false, as_json = false;
  for (const std::string_view word : std::span{argv, static_cast<std::size_t>(argc)}.subspan(1)) {
    if (word == "--program") of_program = true;
    if (word == "--json") as_json = true;
    if (word[0] != '-') rounds = std::max(1, std::atoi(word.data()));
  }
  // A round of a program's takes a minute, and the machine's speed may change by 20 % within it.
  if (rounds == 0) rounds = of_program ? 7 : 3;
  if (of_program) return profile_program(rounds, as_json);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // the run takes minutes
  const scratch in;
  const auto cluster = in.write("near.yaml", cluster_text);
  std::vector<outcome> all(trainings.size());
  for (int r = 0; r < rounds; ++r) {
    // The machine's speed may change over minutes: measured just before those that need it.
    std::string profiled;
    int busy = 0;
    for (std::size_t i = 0; i < trainings.size(); ++i) {
      if (std::exchange(busy, trainings[i].stages) != trainings[i].stages)
        profiled = profile(in, busy);
      run(in, trainings[i], cluster, profiled, all[i]);
    }
  }
  fmt::print(
      "Medians of {} rounds, each a profile and then a training's median iteration of {}:\n\n"
      "| training | layers | stages | rows | estimator ms | virtual ms | measured ms | estimator | "
      "of the rounds | virtual |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
      rounds, iterations);
  double worst = 0;
  for (std::size_t i = 0; i < trainings.size(); ++i) {
    const auto& t = trainings[i];
    const auto& o = all[i];
    const double percent = median(o.estimated_percent);
    const auto [low, high] =
        std::minmax_element(o.estimated_percent.begin(), o.estimated_percent.end());
    worst = std::max(worst, std::abs(percent));
    fmt::print(
        "| {} | {} | {} | {} | {:.0f} | {:.0f} | {:.0f} | {:+.1f} % | {:+.1f} to {:+.1f} % | "
        "{:+.1f} % |\n",
        t.what, t.layers, t.stages, t.rows, median(o.estimated_ms), median(o.virtual_ms),
        median(o.measured_ms), percent, *low, *high, median(o.virtual_percent));
  }
  fmt::print("\nThe estimator is at most {:.1f} % off: {} the {:g} % that it may be.\n", worst,
             worst <= max_percent ? "within" : "not within", max_percent);
  return worst <= max_percent ? 0 : 1;
}
