#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "gpu/cuda/host/device.hpp"
#include "gpu/cuda/host/graphs.hpp"
#include "gpu/emulation/counted_machine.hpp"
#include "gpu_training/parts.hpp"
#include "harness/runs.hpp"

// Tokens per second, fraction of the arithmetic peak, and memory, compared to PyTorch.

namespace troupe::bench {

namespace {

using nlohmann::json;

// PyTorch compiles for up to a minute; one attention backend that hangs leaves the other its time.
constexpr int warm_steps = 5, speed_seconds = 100;

/// Best, median and slowest of the rounds, after the first steps.
json rounds_of(gpu::stage_device& d, const gpu::stage_spec& spec, const options& o) {
  const auto batch = random_batch(spec);
  auto last = train(d, batch, warm_steps);
  std::vector<double> rounds;
  for (int round = 0; last && round < o.rounds; ++round) {
    last = train(d, batch, o.steps);
    if (last) rounds.push_back(last->seconds / o.steps);
  }
  if (!last) return {{"why", last.error().text}};
  const auto tokens = static_cast<double>(gpu::tokens_of(spec));
  const double best = *std::min_element(rounds.begin(), rounds.end());
  return {{"step_s", best},
          {"median_step_s", median(rounds)},
          {"tokens_per_s", tokens / best},
          {"median_tokens_per_s", tokens / median(rounds)},
          {"worst_tokens_per_s", tokens / *std::max_element(rounds.begin(), rounds.end())},
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
    if (now.total_bytes > 0) {
      with["driver_added_bytes"] = before.free_bytes - now.free_bytes;
      with["driver_used_bytes"] = now.total_bytes - now.free_bytes;
    }
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

/// Peaks of the GPU, by the catalogue and as measured; 0: unknown.
struct peaks {
  double tflops = 0, reached_tflops = 0;
};

/// Adds the rate of the model's operations, and its fractions of the peaks.
void add_rates(json& j, const gpu::stage_spec& s, const peaks& p) {
  if (!j.contains("step_s")) return;
  const double tflops = 3 * gpu::size_of(s).forward_flops / j["step_s"].get<double>() / 1e12;
  j["tflops"] = tflops;
  j["mfu"] = p.tflops > 0 ? json(tflops / p.tflops) : json();
  j["of_product"] = p.reached_tflops > 0 ? json(tflops / p.reached_tflops) : json();
}

void print(const char* model, const gpu::stage_spec& s, const std::string& who, const json& j) {
  if (!j.contains("step_s")) {
    fmt::print("| {} | {} | {}: {} |\n", model, s.rows, who, j.value("why", "no result"));
    std::fflush(stdout);
    return;
  }
  const auto share = [&](const char* of) {
    return j[of].is_number() ? number(j, of, 100, 1) + " %" : std::string{"?"};
  };
  const bool engine = !j.contains("peak_allocated_bytes");
  fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", model, s.rows,
             who, number(j, "tokens_per_s", 1, 0), number(j, "median_tokens_per_s", 1, 0),
             number(j, "worst_tokens_per_s", 1, 0), number(j, "step_s", 1e3, 2),
             number(j, "tflops", 1, 1), share("mfu"), share("of_product"),
             number(j, engine ? "allocated_bytes" : "peak_allocated_bytes", 1e-9, 2),
             number(j, "driver_used_bytes", 1e-9, 2), number(j, "loss", 1, 4));
  std::fflush(stdout);
}

/// Compiled, with fused attention of that backend. The vocabulary is one that 128 divides, as
/// PyTorch's users have it for speed; ours fills up, too.
json pytorch_speed(const gpu::stage_spec& spec, const std::string& backend, const options& o) {
  const auto vocabulary = (spec.model.vocabulary + 127) / 128 * 128;
  return pytorch(fmt::format("train {} --words {} --steps {} --rounds {} --backend {}",
                             pytorch_shape(spec, vocabulary), spec.model.vocabulary, o.steps,
                             o.rounds, backend),
                 speed_seconds);
}

/// How much faster the engine is, best round by best round and median by median.
std::string add_ratios(json& row, const std::string& backend) {
  const auto &own = row["troupe"], &peer = row["pytorch_" + backend];
  if (!own.contains("step_s") || !peer.contains("step_s")) return {};
  const auto over = [&](const char* of) { return peer[of].get<double>() / own[of].get<double>(); };
  const double best = over("step_s"), middle = over("median_step_s");
  const auto name = peer["attention"].is_string() ? peer["attention"].get<std::string>() : backend;
  row["ratios"][backend] = {{"best", best}, {"median", middle}, {"attention", name}};
  return fmt::format("{} {:.2f} (medians {:.2f}) with attention by {}",
                     row["model"].get<std::string>(), best, middle, name);
}

/// One model, and PyTorch with each of its attention backends; `keep` has the row after each.
json row_of(const size& s, const peaks& p, const options& o, std::vector<std::string>& ratios,
            const std::function<void(const json&)>& keep) {
  const auto spec = spec_of(s, o.rows ? o.rows : s.rows);
  json row{{"model", s.name}, {"rows", spec.rows}};
  const auto add = [&](const std::string& key, const std::string& who, json found) {
    add_rates(found, spec, p);
    print(s.name, spec, who, found);
    row[key] = std::move(found);
  };
  auto [with, without] = ours(spec, o);
  add("troupe", "troupe", std::move(with));
  add("troupe_without_graphs", "troupe, no graphs", std::move(without));
  keep(row);
  for (const std::string backend : {"flash", "cudnn", "any"}) {
    // PyTorch's own choice is one of the two, unless it has neither.
    if (!o.peer || (backend == "any" && row.contains("ratios"))) continue;
    add("pytorch_" + backend, "PyTorch, " + backend, pytorch_speed(spec, backend, o));
    if (const auto ratio = add_ratios(row, backend); !ratio.empty()) ratios.push_back(ratio);
    if (const auto lacks = row["pytorch_" + backend].value("without", json::array());
        !lacks.empty())
      fmt::print("| {} | | PyTorch had not: {} |\n", s.name, lacks.dump());
    keep(row);
  }
  return row;
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
  const peaks p{known ? known->tflops : 0, measured_peaks(gpu).tflops};
  result["device"] = gpu.name();
  result["catalogue"] = known ? json(known->name) : json();
  result["peak_tflops"] = p.tflops;
  result["reached_tflops"] = p.reached_tflops;
  fmt::print(
      "{}: {} dense 16-bit TFLOP/s by the catalogue{}; a product of 8192 x 8192 x 8192 "
      "reaches {}.\nA step is one micro-batch and its update. Best, median and worst of {} "
      "rounds of {} steps; allocated: by the device's pools, or by PyTorch's tensors.\n\n",
      gpu.name(), known ? fmt::format("{:g}", p.tflops) : "unknown",
      known ? " (" + known->name + ")" : "",
      p.reached_tflops > 0 ? fmt::format("{:.0f}", p.reached_tflops) : "an unknown rate", o.rounds,
      o.steps);
  fmt::print(
      "| model | rows | who | tokens/s | median | worst | ms a step | TFLOP/s | of the peak | of "
      "the product | allocated GB | driver GB | loss |\n|---|---:|---|---:|---:|---:|---:|---:|"
      "---:|---:|---:|---:|---:|\n");
  std::vector<std::string> ratios;
  const auto keep = [&](const json& row) {
    auto so_far = result;
    so_far["rows"].push_back(row);
    o.keep(so_far);
  };
  for (const auto& s : sizes_of(o)) result["rows"].push_back(row_of(s, p, o, ratios, keep));
  if (!ratios.empty())
    fmt::print("\nTroupe's tokens/s over PyTorch's: {}.\n", fmt::join(ratios, ", "));
  fmt::print("\n");
  return result;
}

}  // namespace troupe::bench
