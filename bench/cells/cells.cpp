// bench_cells [ROUNDS]: how long a Cell's plans are estimated to take, from a profile of one core,
// against trainings as processes on this machine. A round is a run of each shape, with a profile
// before and after it: a virtual machine's speed changes from minute to minute. A core is profiled
// beside as many busy ones as it has beside it in the run, with the pauses of an emulated node.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/load/load.hpp"
#include "harness/foreign_load.hpp"
#include "harness/runs.hpp"
#include "planners/crius/cell_estimate.hpp"

using namespace troupe::bench;
using namespace troupe::planners;
using troupe::device_profile;

namespace {

using nlohmann::json;

constexpr double min_mean = 0.95, min_worst = 0.88;
constexpr int rows = 2, iterations = 6;
constexpr double speed = 0.25;  // of a core, so that two cores carry all devices
// A profile or a run with more is made again: the machine was disturbed.
constexpr double max_spread = 0.1, max_uneven = 1.2, max_foreign_percent = 10;
constexpr int max_tries = 4;

struct shape {
  std::uint32_t stages, data, tensor, layers;
};
const std::vector<shape> shapes{{1, 1, 1, 4}, {1, 2, 1, 4}, {1, 1, 2, 4}, {1, 2, 2, 4},
                                {2, 1, 1, 4}, {2, 2, 1, 4}, {2, 1, 2, 4}, {3, 1, 1, 5}};

std::string model_text(std::uint32_t layers) {
  return fmt::format(
      "{{name: small, family: gpt, hidden: 256, layers: {}, heads: 4, sequence: 256, vocabulary: "
      "256}}\n",
      layers);
}

/// One node a pipeline's stage, with as many devices as share it.
std::string cluster_text(const shape& s) {
  return fmt::format(
      "name: near\ndatacenters:\n  - name: here\n    nodes:\n"
      "      - {{name: n, gpu: T4, gpus: {}, count: {}, intra: pcie3, inter: eth10, "
      "emulate_speed: {}}}\n"
      "settings: {{heartbeat_s: 0.2, lease_s: 5, restart_s: 1}}\n",
      s.tensor, s.stages * s.data, speed);
}

/// The job file of a run of this shape, with a Cell's number of micro-batches: four per stage.
std::string job_text(const shape& s, const std::string& cut) {
  const auto microbatches = 4 * s.stages;
  return fmt::format(
      "name: run\nmodel: {}global_batch: {}\niterations: {}\n"
      "train: {{data: {}, seed: 1, schedule: megatron, device: cpu}}\n"
      "pipeline: {{stages: {}, data_parallel: {}, tensor_parallel: {}, microbatches: {}{}}}\n",
      model_text(s.layers), rows * microbatches * s.data, iterations, TROUPE_BENCH_DATA, s.stages,
      s.data, s.tensor, microbatches, cut);
}

template <class T>
T must(troupe::expected<T> x) {
  if (x) return std::move(*x);
  fmt::print(stderr, "{}\n", x.error().text);
  std::exit(2);
}

double spread_of(const json& profile) {
  double max = 0;
  for (const auto& point : profile["models"][0]["points"])
    for (const auto* part : {"attention", "mlp"})
      max = std::max(max, point[part]["spread"].get<double>());
  return max;
}

/// Assumed: the devices of a stage, of all pipelines, compute at the same time, and those of
/// different stages do not.
std::uint32_t busy_devices(const shape& s) {
  return s.data * s.tensor;
}

/// The profile of a core, or of the cores of a stage, while as many other cores compute as in the
/// run, all with the pauses of emulated nodes.
device_profile profiled(const scratch& in, const shape& s) {
  const auto words = fmt::format(
      "profile --model '{}' --rows {} --rounds 5 --busy {} --emulate-speed {}{} "
      "--out profile.yaml",
      in.write("small.yaml", model_text(4)), rows, busy_devices(s), speed,
      s.tensor > 1 ? fmt::format(" --tensor-parallel {}", s.tensor) : "");
  for (int tries = 1;; ++tries) {
    const foreign_load others;
    const double spread = spread_of(troupe_json(in, words));
    const bool calm = spread <= max_spread && others.percent() <= max_foreign_percent;
    if (calm || tries == max_tries)
      return must(troupe::formats::load_profile(in.path("profile.yaml")));
  }
}

struct estimate {
  double iteration_s = 0;
  std::string cut;  // in a job file's notation
};

/// The estimate of the Cell of these stages, each divided as in the shape.
estimate estimated(const scratch& in, const shape& s, const device_profile& p) {
  auto c = must(troupe::formats::load_cluster(in.write("near.yaml", cluster_text(s))));
  for (auto& gpu : c.gpus) gpu.profile = p;
  const auto job = must(troupe::formats::load_job(in.write("cell.yaml", job_text(s, {})), c.gpus));
  const auto pools = pools_of(c, idle_index{c});
  const auto stages = determine_stages(chain_of(job.model), s.stages * s.data * s.tensor, s.stages,
                                       0.05, s.data * s.tensor);
  const auto space = space_of(c, pools.front(), job, stages);
  const auto chosen = static_cast<std::uint32_t>(std::bit_width(s.tensor) - 1);
  estimate e{assembled(space, std::vector<std::uint32_t>(s.stages, chosen)).estimate_s, {}};
  for (const auto& x : stages.stages)
    e.cut += fmt::format("{}{}", e.cut.empty() ? "" : ", ", x.count / 2.0);
  e.cut = fmt::format(", cut: [{}]", e.cut);
  return e;
}

struct measurement {
  double iteration_s = 0, foreign_percent = 0;
};

/// The median iteration, as processes.
measurement measured(const scratch& in, const shape& s, const std::string& cut) {
  const auto words = fmt::format("train --world local '{}' --cluster '{}'",
                                 in.write("job.yaml", job_text(s, cut)), in.path("near.yaml"));
  for (int tries = 1;; ++tries) {
    const foreign_load others;
    const auto t = troupe_json(in, words)["iteration_s"];
    const measurement m{t["p50"].get<double>(), others.percent()};
    const bool calm = t["p99"].get<double>() <= max_uneven * m.iteration_s &&
                      m.foreign_percent <= max_foreign_percent;
    if (calm || tries == max_tries) return m;
  }
}

/// The results of one shape, by round.
struct outcome {
  std::vector<double> estimated_ms, measured_ms, accuracy, foreign;
  std::string cut;
};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 3;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // the run takes minutes
  const scratch in;
  std::vector<outcome> all(shapes.size());
  double profiles_s = 0, runs_s = 0;
  for (int r = 0; r < rounds; ++r) {
    const auto timed_profile = [&](const shape& of) {
      const double begin_s = foreign_load::own_s();
      auto p = profiled(in, of);
      profiles_s += foreign_load::own_s() - begin_s;
      return p;
    };
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      auto e = estimated(in, shapes[i], timed_profile(shapes[i]));
      const double begin_s = foreign_load::own_s();
      const auto m = measured(in, shapes[i], e.cut);
      runs_s += foreign_load::own_s() - begin_s;
      const auto after = estimated(in, shapes[i], timed_profile(shapes[i]));
      e.iteration_s = (e.iteration_s + after.iteration_s) / 2;
      all[i].cut = e.cut.substr(e.cut.find('['));
      all[i].estimated_ms.push_back(1e3 * e.iteration_s);
      all[i].measured_ms.push_back(1e3 * m.iteration_s);
      all[i].accuracy.push_back(1 - std::abs(e.iteration_s / m.iteration_s - 1));
      all[i].foreign.push_back(m.foreign_percent);
      fmt::print(stderr, "{} x {} x {}: {:.0f} ms estimated, {:.0f} measured\n", shapes[i].stages,
                 shapes[i].data, shapes[i].tensor, 1e3 * e.iteration_s, 1e3 * m.iteration_s);
    }
  }
  fmt::print(
      "Medians of {} rounds: of the estimates from a profile before and one after a training, and "
      "of "
      "the training's median iteration of {}:\n\n"
      "| stages | DP | TP | layers | estimated ms | measured ms | accuracy | of the rounds "
      "| others' load |\n|---:|---:|---:|---|---:|---:|---:|---:|---:|\n",
      rounds, iterations);
  double sum = 0, worst = 1;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const auto& o = all[i];
    const double accuracy = median(o.accuracy);
    const auto [low, high] = std::minmax_element(o.accuracy.begin(), o.accuracy.end());
    sum += accuracy, worst = std::min(worst, accuracy);
    fmt::print(
        "| {} | {} | {} | {} | {:.0f} | {:.0f} | {:.1f} % | {:.1f} to {:.1f} % | {:.0f} % |\n",
        shapes[i].stages, shapes[i].data, shapes[i].tensor, o.cut, median(o.estimated_ms),
        median(o.measured_ms), 100 * accuracy, 100 * *low, 100 * *high,
        *std::max_element(o.foreign.begin(), o.foreign.end()));
  }
  const double mean = sum / static_cast<double>(shapes.size());
  fmt::print(
      "\nMean {:.1f} % (target {:g}), worst {:.1f} % (target {:g}). Processor time: "
      "profiles {:.0f} s, runs {:.0f} s, {:.1f} times as long.\n",
      100 * mean, 100 * min_mean, 100 * worst, 100 * min_worst, profiles_s, runs_s,
      runs_s / profiles_s);
  return mean >= min_mean && worst >= min_worst ? 0 : 1;
}
