#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <tuple>

#include "gpu/cuda/host/counted.hpp"
#include "gpu/cuda/host/device.hpp"
#include "gpu/cuda/host/graphs.hpp"
#include "gpu_training/parts.hpp"

// Tokens per second, fraction of the arithmetic peak, and memory, compared to PyTorch.

namespace troupe::bench {

namespace {

using nlohmann::json;

constexpr int warm_steps = 5, speed_seconds = 180;

/// Best of the rounds, after the first steps.
json rounds_of(gpu::stage_device& d, const gpu::stage_spec& spec, const options& o) {
  const auto batch = random_batch(spec);
  auto last = train(d, batch, warm_steps);
  double best = 1e30, worst = 0;
  for (int round = 0; last && round < o.rounds; ++round) {
    last = train(d, batch, o.steps);
    if (!last) break;
    best = std::min(best, last->seconds / o.steps);
    worst = std::max(worst, last->seconds / o.steps);
  }
  if (!last) return {{"why", last.error().text}};
  const auto tokens = static_cast<double>(gpu::tokens_of(spec));
  return {{"step_s", best},
          {"tokens_per_s", tokens / best},
          {"worst_tokens_per_s", tokens / worst},
          {"tflops", 3 * gpu::size_of(spec).forward_flops / best / 1e12},
          {"loss", last->loss}};
}

/// One model on the GPU, with graphs and then without.
std::pair<json, json> ours(const gpu::stage_spec& spec, const options& o) {
  const auto count = std::make_shared<gpu::cuda::taken_memory>();
  const auto before = the_gpu().machine->memory();
  const auto graphs = std::make_shared<gpu::cuda::pass_graphs>(
      std::make_shared<gpu::cuda::counting_machine>(the_gpu().machine, count));
  try {
    gpu::cuda::device d{spec, graphs};
    auto with = rounds_of(d, spec, o);
    const auto now = the_gpu().machine->memory();
    with["allocated_bytes"] = count->bytes + gpu::cuda::workspace_bytes;
    with["driver_added_bytes"] = before.free_bytes - now.free_bytes;
    with["driver_used_bytes"] = now.total_bytes - now.free_bytes;
    with["graphs"] = {{"made", graphs->so_far().made}, {"run", graphs->so_far().run}};
    graphs->stop();
    return {with, rounds_of(d, spec, o)};
  } catch (const std::runtime_error& e) {
    const json why{{"why", e.what()}};
    return {why, why};
  }
}

std::string number(const json& j, const char* key, double factor, int digits) {
  return j.contains(key) && j[key].is_number()
             ? fmt::format("{:.{}f}", j[key].get<double>() * factor, digits)
             : std::string{};
}

void print(const char* model, const gpu::stage_spec& s, const char* who, const json& j,
           double peak_tflops, double reached_tflops) {
  if (j.contains("why")) {
    fmt::print("| {} | {} | {}: {} |\n", model, s.rows, who, j["why"].get<std::string>());
    return;
  }
  const double tflops = 3 * gpu::size_of(s).forward_flops / j["step_s"].get<double>() / 1e12;
  const auto share = [&](double of) {
    return of > 0 ? fmt::format("{:.1f} %", 100 * tflops / of) : std::string{"?"};
  };
  const bool engine = !j.contains("peak_allocated_bytes");
  fmt::print("| {} | {} | {} | {} | {} | {} | {:.1f} | {} | {} | {} | {} | {} |\n", model, s.rows,
             who, number(j, "tokens_per_s", 1, 0), number(j, "worst_tokens_per_s", 1, 0),
             number(j, "step_s", 1e3, 2), tflops, share(peak_tflops), share(reached_tflops),
             number(j, engine ? "allocated_bytes" : "peak_allocated_bytes", 1e-9, 2),
             number(j, "driver_used_bytes", 1e-9, 2), number(j, "loss", 1, 4));
  std::fflush(stdout);
}

}  // namespace

nlohmann::json measure_speed(const options& o) {
  fmt::print("## GPT-2's speed\n\n");
  json result{{"rows", json::array()}};
  if (!the_gpu().machine) {
    fmt::print("Left out: {}.\n\n", the_gpu().why);
    result["why"] = the_gpu().why;
    return result;
  }
  auto& gpu = *the_gpu().machine;
  const auto total = static_cast<double>(gpu.memory().total_bytes);
  const auto known = catalogue_of(gpu.name(), total);
  const auto peaks = measured_peaks(gpu);
  const double peak = known ? known->tflops : 0;
  result["device"] = gpu.name();
  result["catalogue"] = known ? json(known->name) : json();
  result["peak_tflops"] = peak;
  result["reached_tflops"] = peaks.tflops;
  fmt::print(
      "{}: {} dense 16-bit TFLOP/s by the catalogue{}; a product of 8192 x 8192 x 8192 "
      "reaches {:.0f}.\nA step is one micro-batch and its update. Best of {} rounds of {} "
      "steps; allocated: by the device's pools, or by PyTorch's tensors.\n\n",
      gpu.name(), known ? fmt::format("{:.0f}", peak) : "unknown",
      known ? " (" + known->name + ")" : "", peaks.tflops, o.rounds, o.steps);
  fmt::print(
      "| model | rows | who | tokens/s | worst | ms a step | TFLOP/s | of the peak | of the "
      "product | allocated GB | driver GB | loss |\n|---|---:|---|---:|---:|---:|---:|---:|---:"
      "|---:|---:|---:|\n");
  std::vector<std::string> ratios;
  for (const auto& s : sizes_of(o)) {
    const auto spec = spec_of(s, o.rows ? o.rows : s.rows);
    json row{{"model", s.name}, {"rows", spec.rows}};
    std::tie(row["troupe"], row["troupe_without_graphs"]) = ours(spec, o);
    print(s.name, spec, "troupe", row["troupe"], peak, peaks.tflops);
    print(s.name, spec, "troupe, no graphs", row["troupe_without_graphs"], peak, peaks.tflops);
    if (o.peer) {
      // A vocabulary that 128 divides, as PyTorch's users have it for speed; ours fills up, too.
      row["pytorch"] =
          pytorch(fmt::format("train {} --words {} --steps {} --rounds {}",
                              pytorch_shape(spec, 50304), spec.model.vocabulary, o.steps, o.rounds),
                  speed_seconds);
      print(s.name, spec, "PyTorch", row["pytorch"], peak, peaks.tflops);
      if (row["troupe"].contains("step_s") && row["pytorch"].contains("step_s")) {
        const double ratio =
            row["pytorch"]["step_s"].get<double>() / row["troupe"]["step_s"].get<double>();
        row["ratio"] = ratio;
        ratios.push_back(fmt::format("{} {:.2f}", s.name, ratio));
        if (const auto& without = row["pytorch"]["without"]; !without.empty())
          fmt::print("| {} | | PyTorch had not: {} |\n", s.name, without.dump());
      }
    }
    result["rows"].push_back(row);
  }
  if (!ratios.empty())
    fmt::print("\nTroupe's tokens/s over PyTorch's: {}.\n", fmt::join(ratios, ", "));
  fmt::print("\n");
  return result;
}

}  // namespace troupe::bench
