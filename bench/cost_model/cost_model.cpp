// bench_cost_model [runs]: the cost model's errors against published training times
// (tests/planners/published_runs.csv). An error is predicted / published - 1. By source and set;
// `runs`: every run. Then how much faster a GPU type is than another in runs that differ in nothing
// else, predicted over published. Then the memory model's errors against published readings
// (tests/planners/published_memory.csv).

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "formats/load/load.hpp"
#include "harness/published_runs.hpp"
#include "messages/base/units.hpp"

namespace troupe::bench {
namespace {

using harness::published_run;

struct compared {
  published_run run;
  double predicted_s = 0;

  double error() const { return predicted_s / run.iteration_s - 1; }
};

std::vector<compared> compare_all() {
  const std::string root = TROUPE_BENCH_SOURCE;
  const auto runs = harness::load_published_runs(root + "/tests/planners/published_runs.csv");
  const auto gpus = formats::load_catalogue(root + "/configs/gpus.yaml");
  if (!runs || !gpus) {
    fmt::print(stderr, "{}\n", (runs ? gpus.error() : runs.error()).text);
    std::exit(1);
  }
  std::vector<compared> out;
  for (const auto& run : *runs) {
    const auto s = harness::predicted_s(run, *gpus);
    if (!s) {
      fmt::print(stderr, "{}: {}\n", run.source, s.error().text);
      std::exit(1);
    }
    out.push_back({run, *s});
  }
  return out;
}

void print_row(const std::string& source, const std::string& set, const std::vector<double>& all) {
  const auto s = harness::summary_of(all);
  fmt::print("| {} | {} | {} | {:.1f} % | {:.1f} % |\n", source, set, s.runs, 100 * s.median,
             100 * s.worst);
}

void print_summary(const std::vector<compared>& all) {
  std::map<std::pair<std::string, std::string>, std::vector<double>> by_source;
  std::map<std::string, std::vector<double>> by_set;
  for (const auto& x : all) {
    if (x.run.set == "ratio") continue;
    by_source[{x.run.source, x.run.set}].push_back(x.error());
    by_set[x.run.set].push_back(x.error());
  }
  fmt::print("| source | set | runs | median | worst |\n|---|---|---:|---:|---:|\n");
  for (const auto& [key, errors] : by_source) print_row(key.first, key.second, errors);
  for (const auto& [set, errors] : by_set) print_row("all", set, errors);
}

void print_runs(const std::vector<compared>& all) {
  fmt::print("| source | set | GPU | run | published s | error |\n|---|---|---|---|---:|---:|\n");
  for (const auto& x : all) {
    const auto& r = x.run;
    fmt::print(
        "| {} | {} | {} x {} | {} layers of {}, {} x {} x {}, {}, d{} t{} p{} | {:.4g} | "
        "{:+.1f} % |\n",
        r.source, r.set, r.gpus_per_node * r.nodes, r.gpu, r.model.layers, r.model.hidden,
        r.microbatches, r.rows, r.model.sequence, r.precision, r.data, r.tensor, r.pipeline,
        r.iteration_s, 100 * x.error());
  }
}

void print_ratios(const std::vector<compared>& all) {
  std::vector<double> errors;
  fmt::print(
      "\n| source | GPUs | rows | published | predicted | error "
      "|\n|---|---|---:|---:|---:|---:|\n");
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = i + 1; j < all.size(); ++j) {
      const auto &a = all[i], &b = all[j];
      if (!harness::differ_in_gpu_alone(a.run, b.run)) continue;
      const double published = b.run.iteration_s / a.run.iteration_s;
      const double predicted = b.predicted_s / a.predicted_s;
      errors.push_back(predicted / published - 1);
      fmt::print("| {} | {} / {} | {} | {:.2f} | {:.2f} | {:+.1f} % |\n", a.run.source, a.run.gpu,
                 b.run.gpu, a.run.rows, published, predicted, 100 * errors.back());
    }
  const auto s = harness::summary_of(errors);
  fmt::print("| all | | {} | | | median {:.1f} %, worst {:.1f} % |\n", s.runs, 100 * s.median,
             100 * s.worst);
}

void print_summary_row(const char* what, const std::vector<double>& errors) {
  const auto s = harness::summary_of(errors);
  fmt::print("| {} | | {} | | | mean {:.1f} %, median {:.1f} %, worst {:.1f} % |\n", what, s.runs,
             100 * s.mean, 100 * s.median, 100 * s.worst);
}

void print_memory() {
  const std::string root = TROUPE_BENCH_SOURCE;
  const auto readings =
      harness::load_published_memory(root + "/tests/planners/published_memory.csv");
  if (!readings) {
    fmt::print(stderr, "{}\n", readings.error().text);
    std::exit(1);
  }
  std::vector<double> errors, with_overhead;
  fmt::print(
      "\n| source | GPU | run | read GB | predicted GB | error |\n|---|---|---|---:|---:|---:|\n");
  for (const auto& r : *readings) {
    const double bytes = harness::predicted_bytes(r);
    const auto run = fmt::format("{} layers of {}, {} x {}, {}, {}, checkpointing {}, d{} t{}",
                                 r.model.layers, r.model.hidden, r.rows, r.model.sequence,
                                 r.precision, r.optimizer, r.checkpointing, r.data, r.tensor);
    if (r.bytes == 0) {
      fmt::print("| {} | {} | {} | out of memory | {:.1f} | |\n", r.source, r.gpu, run,
                 bytes / bytes_per_gb);
      continue;
    }
    errors.push_back(bytes / r.bytes - 1);
    with_overhead.push_back(bytes * harness::allocator_overhead(*readings, r.source) / r.bytes - 1);
    fmt::print("| {} | {} | {} | {:.1f} | {:.1f} | {:+.1f} % |\n", r.source, r.gpu, run,
               r.bytes / bytes_per_gb, bytes / bytes_per_gb, 100 * errors.back());
  }
  print_summary_row("all", errors);
  print_summary_row("all, with the allocator overhead of the other source", with_overhead);
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) {
  const auto all = troupe::bench::compare_all();
  troupe::bench::print_summary(all);
  if (argc > 1 && std::string{argv[1]} == "runs") troupe::bench::print_runs(all);
  troupe::bench::print_ratios(all);
  troupe::bench::print_memory();
}
