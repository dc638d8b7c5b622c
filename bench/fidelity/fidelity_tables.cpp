#include "fidelity_tables.hpp"

#include <fmt/format.h>

#include <map>

#include "messages/base/units.hpp"

namespace troupe::bench {

namespace {

void print_groups(const grouped_runs& groups) {
  for (const auto& [key, runs] : groups) {
    const auto s = harness::summary_of(errors_of(runs));
    fmt::print("| {} | {} | {} | {:.1f} % | {:+.1f} % | {:.1f} % | {:.2f} |\n", key.first,
               key.second, s.runs, 100 * s.median, 100 * s.bias, 100 * s.worst,
               rank_correlation_of(runs));
  }
}

void print_head(const char* by) {
  fmt::print("\n| source | {} | runs | median | bias | worst | rank |\n", by);
  fmt::print("|---|---|---:|---:|---:|---:|---:|\n");
}

void print_errors(const char* what, const std::vector<double>& errors) {
  const auto s = harness::summary_of(errors);
  fmt::print("| {} | | {} | | | mean {:.1f} %, median {:.1f} %, worst {:.1f} % |\n", what, s.runs,
             100 * s.mean, 100 * s.median, 100 * s.worst);
}

}  // namespace

void print_summaries(const judgement& j) {
  print_head("set");
  print_groups(by_source_and_set(j));
  std::map<std::string, std::vector<double>> by_set;
  for (const auto& x : j.runs) by_set[x.run.set].push_back(x.error());
  for (const auto& [set, errors] : by_set) {
    const auto s = harness::summary_of(errors);
    fmt::print("| all | {} | {} | {:.1f} % | {:+.1f} % | {:.1f} % | |\n", set, s.runs,
               100 * s.median, 100 * s.bias, 100 * s.worst);
  }
  print_head("GPU");
  print_groups(by_source_and_gpu(j));
  print_head("kind (GPU, recomputation, tokens of a sequence)");
  print_groups(by_source_and_kind(j));
}

void print_runs(const judgement& j) {
  fmt::print("\n| source | set | run | published s | predicted s | error |\n");
  fmt::print("|---|---|---|---:|---:|---:|\n");
  for (const auto& x : j.runs)
    fmt::print("| {} | {} | {} | {:.4g} | {:.4g} | {:+.1f} % |\n", x.run.source, x.run.set,
               harness::name_of(x.run), x.run.iteration_s, x.predicted_s, 100 * x.error());
}

void print_ratios(const judgement& j) {
  auto all = j.runs;
  all.insert(all.end(), j.of_ratios.begin(), j.of_ratios.end());
  std::vector<double> errors;
  fmt::print("\n| source | GPUs | rows | published | predicted | error |\n");
  fmt::print("|---|---|---:|---:|---:|---:|\n");
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t k = i + 1; k < all.size(); ++k) {
      const auto &a = all[i], &b = all[k];
      if (!harness::differ_in_gpu_alone(a.run, b.run)) continue;
      const double published = b.run.iteration_s / a.run.iteration_s;
      const double predicted = b.predicted_s / a.predicted_s;
      errors.push_back(predicted / published - 1);
      fmt::print("| {} | {} / {} | {} | {:.2f} | {:.2f} | {:+.1f} % |\n", a.run.source, a.run.gpu,
                 b.run.gpu, a.run.rows, published, predicted, 100 * errors.back());
    }
  print_errors("all", errors);
}

void print_peaks(const judgement& j) {
  if (j.peaks.empty()) return;
  std::map<std::string, std::vector<double>> groups;
  fmt::print("\n| source | run | peak GiB | predicted GiB | error |\n|---|---|---:|---:|---:|\n");
  for (const auto& x : j.peaks) {
    constexpr double gib = 1 << 30;
    fmt::print("| {} | {} | {:.2f} | {:.2f} | {:+.1f} % |\n", x.run.source, harness::name_of(x.run),
               x.run.peak_bytes / gib, x.predicted_bytes / gib, 100 * x.error());
    groups[x.run.lora_rank > 0 ? "LoRA" : "all parameters"].push_back(x.error());
    if (x.run.lora_rank == 0) groups["all parameters, " + x.run.gpu].push_back(x.error());
  }
  for (const auto& [what, errors] : groups) print_errors(what.c_str(), errors);
}

void print_unsaid(const judgement& j) {
  if (j.unsaid.empty()) return;
  fmt::print("\n| source | rows that cannot be said | reason |\n|---|---|---|\n");
  for (const auto& x : j.unsaid)
    fmt::print("| {} | {} | {} |\n", x.run.source, harness::name_of(x.run), x.reason);
}

void print_readings(const std::vector<harness::published_memory>& readings) {
  std::vector<double> errors, with_overhead;
  fmt::print("\n| source | GPU | run | read GB | predicted GB | error |\n");
  fmt::print("|---|---|---|---:|---:|---:|\n");
  for (const auto& r : readings) {
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
    with_overhead.push_back(bytes * harness::allocator_overhead(readings, r.source) / r.bytes - 1);
    fmt::print("| {} | {} | {} | {:.1f} | {:.1f} | {:+.1f} % |\n", r.source, r.gpu, run,
               r.bytes / bytes_per_gb, bytes / bytes_per_gb, 100 * errors.back());
  }
  print_errors("all", errors);
  print_errors("all, with the allocator overhead of the other source", with_overhead);
}

}  // namespace troupe::bench
