// bench_training [ROUNDS [PART...]]: the CPU's engine beside PyTorch on one thread, two stages
// beside one, as threads and as processes, and how close its products come to what a core can do.
// Prints ratios. Parts: products, pytorch, threads, processes; all if none is named.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/runs.hpp"
#include "planners/cost/model_partition.hpp"
#include "training/gemm.hpp"
#include "training/processes.hpp"
#include "training/schedule.hpp"

using namespace troupe;
using namespace troupe::bench;

namespace {

constexpr std::uint32_t rows = 4, steps_a_round = 6;

model engine_model() {
  model m;
  m.name = "engine";
  m.hidden = 384;
  m.layers = 6;
  m.heads = 6;
  m.sequence = 256;
  m.vocabulary = 4096;
  return m;
}

std::string load() {
  std::ifstream in{"/proc/loadavg"};
  std::string one;
  in >> one;
  return one;
}

/// Tokens a second of its best step, or nothing if there is no PyTorch.
std::optional<double> pytorch(const model& m, std::string& version) {
  // Debian's PyTorch belongs to Debian's Python. OpenBLAS reads the type of core as it is loaded,
  // and PyTorch by itself stays with AVX2.
  const auto command = fmt::format(
      "{} OMP_NUM_THREADS=1 /usr/bin/python3 {} {} {} {} {} {} {} {} 2>/dev/null",
      __builtin_cpu_supports("avx512f") ? "OPENBLAS_CORETYPE=SkylakeX ATEN_CPU_CAPABILITY=avx512"
                                        : "",
      TROUPE_BENCH_PYTORCH, m.layers, m.hidden, m.heads, m.sequence, rows, m.vocabulary,
      steps_a_round);
  const auto reply = nlohmann::json::parse(printed_by(command).text, nullptr, false);
  if (!reply.is_object() || !reply.contains("tokens_per_s")) return std::nullopt;
  version = reply["version"].get<std::string>();
  return reply["tokens_per_s"].get<double>();
}

void print_products(const model& m) {
  const double peak = multiply_add_peak();
  fmt::print("One core does {:.0f} GFLOP/s of multiply-adds in registers. Products:\n\n", peak);
  fmt::print(
      "| product | rows | columns | inner | GFLOP/s | of the peak |\n"
      "|---|---:|---:|---:|---:|---:|\n");
  for (const auto& s : product_speeds(rows * m.sequence, m.hidden, m.vocabulary, m.layers)) {
    const auto size = [](std::size_t n) { return n ? fmt::format("{}", n) : std::string{}; };
    fmt::print("| {} | {} | {} | {} | {:.0f} | {:.0f} % |\n", s.what, size(s.rows), size(s.columns),
               size(s.inner), s.gflops, 100 * s.gflops / peak);
  }
}

void print_one_thread(const model& m, int rounds) {
  pipeline one{m, rows, {2 * m.layers}};
  one.iterate(1);
  double ours = 0, theirs = 0;
  std::string version;
  bool there = true;
  for (int r = 0; r < rounds; ++r) {
    for (std::uint32_t i = 0; i < steps_a_round; ++i)
      ours = std::max(ours, rows * m.sequence / one.iterate(1).processor_s);
    const auto speed = there ? pytorch(m, version) : std::nullopt;
    there = speed.has_value();
    theirs = std::max(theirs, speed.value_or(0));
  }
  fmt::print("\nOne thread, best step of {}, processor time: {:.0f} tokens/s",
             rounds * steps_a_round, ours);
  if (there)
    fmt::print("; PyTorch {}: {:.0f}; ratio {:.2f}\n", version, theirs, ours / theirs);
  else
    fmt::print(". PyTorch (Debian's python3-torch) is not there, and was left out.\n");
}

void print_two_stages(const model& m, int rounds) {
  std::vector<std::uint32_t> sublayers;
  job_spec job;
  job.model = m;
  job.pipeline.recompute = false;
  for (const auto& part : planners::split_model(job, 2)) sublayers.push_back(part.count);
  pipeline one{m, rows, {2 * m.layers}}, two{m, rows, sublayers};
  fmt::print(
      "\nTwo stages ({:g} and {:g} layers) on two threads beside one, {} words:\n\n"
      "| micro-batches | one tokens/s | two tokens/s | ratio | at most |\n"
      "|---:|---:|---:|---:|---:|\n",
      sublayers[0] / 2.0, sublayers[1] / 2.0, m.vocabulary);
  one.iterate(1);
  two.iterate(2);
  for (const std::uint32_t count : {4u, 16u, 64u}) {
    double alone = 1e9, both = 1e9, bound = 0;
    // A minute a line is enough: a long iteration is a mean by itself.
    for (int r = 0; r < rounds && r * count < 48; ++r) {
      const auto a = one.iterate(count), b = two.iterate(count);
      alone = std::min(alone, a.wall_s);
      if (b.wall_s >= both) continue;
      both = b.wall_s;
      // The slower stage works without a pause; the other begins and ends before and behind it.
      const double slow = std::max(b.busy_s[0], b.busy_s[1]),
                   quick = std::min(b.busy_s[0], b.busy_s[1]);
      bound = (slow + quick) / (slow + quick / count);
    }
    const double tokens = 1.0 * count * rows * m.sequence;
    fmt::print("| {} | {:.0f} | {:.0f} | {:.2f} | {:.2f} |\n", count, tokens / alone, tokens / both,
               alone / both, bound);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 3;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // the run takes minutes
  const std::vector<std::string> parts(argv + std::min(argc, 2), argv + argc);
  const auto wanted = [&](const char* part) {
    return parts.empty() || std::ranges::find(parts, part) != parts.end();
  };
  const auto m = engine_model();
  fmt::print(
      "Training on the CPU: {} layers, hidden {}, {} heads, {} tokens, batch {}, {} words, "
      "fp32; load {}.\n\n",
      m.layers, m.hidden, m.heads, m.sequence, rows, m.vocabulary, load());
  if (wanted("products")) print_products(m);
  if (wanted("pytorch")) print_one_thread(m, rounds);
  if (wanted("threads")) {
    print_two_stages(m, rounds);
    auto bytes = m;
    bytes.vocabulary = 256;
    print_two_stages(bytes, rounds);
  }
  if (wanted("processes")) print_processes(m, rows, rounds);
  fmt::print("\nLoad at the end: {}.\n", load());
}
