#include "training/processes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/runs.hpp"

namespace troupe::bench {

namespace {

constexpr std::uint32_t microbatches = 32;

constexpr const char* cluster =
    "name: near\n"
    "datacenters:\n"
    "  - name: here\n"
    "    nodes:\n"
    "      - {name: a, gpu: T4, gpus: 1, intra: pcie3, inter: eth100}\n"
    "      - {name: b, gpu: T4, gpus: 1, intra: pcie3, inter: eth100}\n";

std::string job_of(const model& m, std::uint32_t rows, const std::string& pipeline) {
  return fmt::format(
      "name: engine\n"
      "model: {{name: engine, family: gpt, hidden: {}, layers: {}, heads: {}, sequence: {}, "
      "vocabulary: {}}}\n"
      "global_batch: {}\n"
      "iterations: 3\n"
      "train: {{data: '{}', schedule: megatron}}\n"
      "pipeline: {{data_parallel: 1, microbatches: {}, {}}}\n",
      m.hidden, m.layers, m.heads, m.sequence, m.vocabulary, rows * microbatches, TROUPE_BENCH_DATA,
      microbatches, pipeline);
}

}  // namespace

void print_processes(const model& m, std::uint32_t rows, int rounds) {
  const scratch in;
  in.write("cluster.yaml", cluster);
  const char* pipelines[] = {"stages: 1", "stages: 2", "stages: 2, recompute: false"};
  double quickest_s[] = {1e9, 1e9, 1e9};
  for (int r = 0; r < rounds; ++r)
    for (int i = 0; i < 3; ++i) {
      in.write("job.yaml", job_of(m, rows, pipelines[i]));
      const auto reply = troupe_json(in, "train job.yaml --world local --cluster cluster.yaml");
      quickest_s[i] = std::min(quickest_s[i], reply["iteration_s"]["p50"].get<double>());
    }
  fmt::print(
      "\n`troupe train`, stages as processes, {} words, {} micro-batches under megatron, median "
      "iteration of 3, best of {}:\n\n"
      "| pipeline | tokens/s | ratio |\n|---|---:|---:|\n",
      m.vocabulary, microbatches, rounds);
  for (int i = 0; i < 3; ++i)
    fmt::print("| {} | {:.0f} | {:.2f} |\n", pipelines[i],
               microbatches * rows * m.sequence / quickest_s[i], quickest_s[0] / quickest_s[i]);
}

}  // namespace troupe::bench
