#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>

#include "formats/load/load.hpp"
#include "gpu/cuda/host/device.hpp"
#include "gpu/cuda/host/graphs.hpp"
#include "gpu/model/tokens.hpp"
#include "gpu_training/loss_limits.hpp"
#include "gpu_training/parts.hpp"
#include "harness/runs.hpp"

// 200 steps of a small model from the same weights on the same text: the engine on the CPU and on
// the GPU, and PyTorch on both.

namespace troupe::bench {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
namespace step = gpu::operations;

// Small and slow enough for rounding to stay small: trainings that learn faster part by several per
// cent within 50 steps, though both are right.
constexpr double rate = 3e-4;

gpu::stage_spec small() {
  gpu::stage_spec s;
  s.model.name = "small";
  s.model.hidden = 64;
  s.model.layers = 4;
  s.sublayers = 8;
  s.model.heads = 1;
  s.model.sequence = 64;
  s.model.vocabulary = 256;
  s.has_embedding = s.has_head = true;
  s.rows = 4;
  s.learning_rate = rate;
  return s;
}

using batches = std::vector<std::vector<payload>>;

expected<batches> batches_of(const gpu::stage_spec& s, int steps) {
  const auto text = formats::configs_directory() / "data" / "founding.txt";
  const auto data = gpu::token_data::open(text, {}, s.model);
  if (!data) return refuse(data.error());
  batches all;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(steps); ++i) {
    const auto read = data->sample(1, i, 0, s.rows);
    if (!read) return refuse(read.error());
    const auto& b = *read;
    all.push_back({b.tokens, b.targets});
  }
  return all;
}

void write(const fs::path& file, const batches& all) {
  std::ofstream out{file, std::ios::binary};
  for (const auto& b : all)
    for (const auto& p : b)
      out.write(reinterpret_cast<const char*>(p.bytes().data()),
                static_cast<std::streamsize>(p.bytes().size()));
}

/// The losses, or what went wrong.
json losses_of(expected<std::unique_ptr<gpu::stage_device>> d, const batches& all,
               const fs::path& checkpoint = {}) {
  if (!d) return {{"why", d.error().text}};
  const std::vector<payload> nothing;
  if (!checkpoint.empty()) {
    std::promise<std::string> saved;
    (*d)->submit({step::save{checkpoint.string()}},
                 [&](const auto& r) { saved.set_value(r ? "" : r.error().text); });
    if (const auto why = saved.get_future().get(); !why.empty()) return {{"why", why}};
  }
  std::vector<double> losses;
  for (const auto& b : all) {
    const auto done = train(**d, b, 1);
    if (!done) return {{"why", done.error().text}};
    losses.push_back(done->loss);
  }
  return {{"losses", losses}};
}

expected<std::unique_ptr<gpu::stage_device>> make_gpu_device(const gpu::stage_spec& s) {
  if (!the_gpu().emulated) return gpu::make_cuda_device(s);
  return std::make_unique<gpu::cuda::device>(s, gpu::cuda::with_graphs(the_gpu().machine));
}

struct training {
  std::string name;
  json printed;
  loss_limits limits;
};

std::vector<double> losses_in(const json& printed) {
  return printed.contains("losses") ? printed["losses"].get<std::vector<double>>()
                                    : std::vector<double>{};
}

/// Adds its distances from the first training's losses to its result; nothing if it has none.
std::optional<loss_distance> compare(training& t, const std::vector<double>& reference) {
  if (!t.printed.contains("losses")) return std::nullopt;
  const auto d = distance_of(losses_in(t.printed), reference);
  t.printed["farthest"] = {{"early", d.early}, {"later", d.later}};
  t.printed["allowed"] = {{"early", t.limits.early},
                          {"later", t.limits.later ? json(*t.limits.later) : json()}};
  t.printed["within"] = is_within(d, t.limits);
  return d;
}

void print(const std::vector<training>& all) {
  const auto steps = losses_in(all.front().printed).size();
  std::vector<std::size_t> shown{1, 2, 25, 50, 100, 150, 200};
  std::erase_if(shown, [&](std::size_t i) { return i > steps; });
  fmt::print("| training |");
  for (const auto i : shown) fmt::print(" {} |", i);
  fmt::print(" farthest to step {} | allowed | farthest later | allowed | |\n|---|", early_steps);
  for (std::size_t i = 0; i < shown.size() + 4; ++i) fmt::print("---:|");
  fmt::print("---|\n");
  for (const auto& t : all) {
    if (!t.printed.contains("losses")) {
      fmt::print("| {} | left out: {} |\n", t.name, t.printed.value("why", "no losses"));
      continue;
    }
    fmt::print("| {} |", t.name);
    const auto losses = losses_in(t.printed);
    for (const auto i : shown)
      fmt::print(" {} |", i <= losses.size() ? fmt::format("{:.5f}", losses[i - 1]) : "");
    if (&t == &all.front()) {
      fmt::print(" | | | | |\n");
      continue;
    }
    const auto d = distance_of(losses, losses_in(all.front().printed));
    fmt::print(" {:.4f} % | {:g} % | {:.4f} % | {} | {} |\n", 100 * d.early, 100 * t.limits.early,
               100 * d.later,
               t.limits.later ? fmt::format("{:.4f} %", 100 * *t.limits.later) : "any",
               is_within(d, t.limits) ? "yes" : "**no**");
  }
  fmt::print("\n");
}

}  // namespace

nlohmann::json measure_losses(const options& o) {
  const auto s = small();
  fmt::print(
      "## {} steps' losses\n\n{} layers, hidden {}, heads: {}, {} rows of {} bytes of text, "
      "AdamW at {:g}; the same first weights and the same rows. Farthest: from the first "
      "line, at any step. In 16 bits the engine may be {:g} % from it in the first {} steps, and "
      "later twice as far as PyTorch.\n\n",
      o.losses, s.model.layers, s.model.hidden, s.model.heads, s.rows, s.model.sequence, rate,
      100 * within_16, early_steps);
  const auto data = batches_of(s, o.losses);
  if (!data) {
    fmt::print("Left out: {}\n\n", data.error().text);
    return {{"why", data.error().text}};
  }
  const scratch folder;
  write(folder.path("batches.u32"), *data);

  const auto peer = [&](const std::string& how) {
    if (!o.peer) return json{{"why", "not asked for"}};
    return pytorch(fmt::format("losses {} '{}' '{}' --rate {} --compile 0 {}",
                               pytorch_shape(s, s.model.vocabulary), folder.path(),
                               folder.path("batches.u32"), rate, how),
                   200);
  };
  std::vector<training> all;
  std::vector<double> reference;
  json result{{"steps", o.losses}, {"trainings", json::object()}};
  const auto add = [&](std::string name, json printed, const loss_limits& limits) {
    all.push_back({std::move(name), std::move(printed), limits});
    if (all.size() == 1) reference = losses_in(all[0].printed);
    const auto d = compare(all.back(), reference);
    result["trainings"][all.back().name] = all.back().printed;
    o.keep(result);
    return d;
  };
  add("engine, CPU, fp32", losses_of(gpu::make_cpu_device(s), *data, folder.path()), limits_32);
  if (reference.empty()) {
    fmt::print("Left out: {}\n\n", all.front().printed.value("why", ""));
    return all.front().printed;
  }
  add("PyTorch, CPU, fp32", peer("--device cpu --precision fp32 --attention plain"), limits_32);
  // PyTorch's 16 bits on a CPU are other operations than a GPU's: no yardstick.
  const std::string why = the_gpu().emulated ? "the GPU is emulated" : the_gpu().why;
  const auto yardstick =
      add("PyTorch, CUDA, bf16", why.empty() ? peer("--device cuda") : json{{"why", why}},
          limits_of_peer);
  add(the_gpu().emulated ? "engine, emulated, bf16" : "engine, CUDA, bf16",
      losses_of(make_gpu_device(s), *data), limits_beside(yardstick));
  print(all);
  result["compared"] = std::count_if(
      all.begin(), all.end(), [](const training& t) { return t.printed.contains("losses"); });
  if (result["compared"] < 2) return result;
  result["within"] = std::all_of(all.begin(), all.end(),
                                 [](const training& t) { return t.printed.value("within", true); });
  return result;
}

}  // namespace troupe::bench
