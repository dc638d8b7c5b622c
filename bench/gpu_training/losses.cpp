#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>

#include "formats/load/load.hpp"
#include "gpu/model/tokens.hpp"
#include "gpu_training/parts.hpp"
#include "harness/runs.hpp"

// 200 steps of a small model from the same weights on the same text: the engine on the CPU and on
// the GPU, and PyTorch on both.

namespace troupe::bench {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using step = gpu::operation::kind;

constexpr int steps = 200;
constexpr double rate = 1e-3;
// How far a loss may be from the CPU engine's at any step, as a share of it. In 32 bits both do the
// same up to the order of sums; in 16 bits five times what a single step may be off (devices.cpp of
// tests/gpu); two trainings in 16 bits are each as far from the truth.
constexpr double within_32 = 1e-3, within_16 = 5e-3;

gpu::stage_spec small() {
  gpu::stage_spec s;
  s.model.name = "small";
  s.model.hidden = 128;
  s.model.layers = 4;
  s.sublayers = 8;
  s.model.heads = 4;
  s.model.sequence = 128;
  s.model.vocabulary = 256;
  s.has_embedding = s.has_head = true;
  s.rows = 8;
  s.learning_rate = rate;
  return s;
}

using batches = std::vector<std::vector<payload>>;

expected<batches> batches_of(const gpu::stage_spec& s) {
  const auto text = formats::configs_directory() / "data" / "founding.txt";
  const auto data = gpu::token_data::open(text, {}, s.model);
  if (!data) return refuse(data.error());
  batches all;
  for (std::uint64_t i = 0; i < steps; ++i) {
    const auto b = data->sample(1, i, 0, s.rows);
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
    (*d)->submit({.what = step::save, .path = checkpoint.string()},
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

struct training {
  std::string name;
  json said;
  double within = 0;
};

/// Largest distance from the first's losses; false: more than is allowed.
bool print(std::vector<training>& all) {
  const auto reference = all.front().said["losses"].get<std::vector<double>>();
  fmt::print("| training |");
  const std::vector<std::size_t> shown{1, 2, 25, 50, 100, 150, 200};
  for (const auto i : shown) fmt::print(" {} |", i);
  fmt::print(" farthest | allowed | |\n|---|");
  for (std::size_t i = 0; i < shown.size() + 2; ++i) fmt::print("---:|");
  fmt::print("---|\n");
  bool good = true;
  for (auto& t : all) {
    if (!t.said.contains("losses")) {
      fmt::print("| {} | left out: {} |\n", t.name, t.said.value("why", ""));
      continue;
    }
    const auto losses = t.said["losses"].get<std::vector<double>>();
    double off = losses.size() == reference.size() ? 0 : 1;
    for (std::size_t i = 0; i < losses.size() && i < reference.size(); ++i)
      off = std::max(off, std::abs(losses[i] - reference[i]) / reference[i]);
    fmt::print("| {} |", t.name);
    for (const auto i : shown) fmt::print(" {:.5f} |", losses.at(i - 1));
    const bool near = std::isfinite(off) && off <= t.within;
    if (&t == &all.front())
      fmt::print(" | | |\n");
    else
      fmt::print(" {:.5f} % | {:g} % | {} |\n", 100 * off, 100 * t.within, near ? "yes" : "**no**");
    t.said["farthest"] = off;
    good = good && near;
  }
  fmt::print("\n");
  return good;
}

}  // namespace

nlohmann::json measure_losses(const options& o) {
  const auto s = small();
  fmt::print(
      "## {} steps' losses\n\n{} layers, hidden {}, {} heads, {} rows of {} bytes of text, "
      "AdamW at {:g}; the same first weights and the same rows. Farthest: from the first "
      "line, at any step.\n\n",
      steps, s.model.layers, s.model.hidden, s.model.heads, s.rows, s.model.sequence, rate);
  const auto data = batches_of(s);
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
  all.push_back(
      {"engine, CPU, fp32", losses_of(gpu::make_cpu_device(s), *data, folder.path()), within_32});
  if (!all.front().said.contains("losses")) {
    fmt::print("Left out: {}\n\n", all.front().said.value("why", ""));
    return all.front().said;
  }
  all.push_back(
      {"PyTorch, CPU, fp32", peer("--device cpu --precision fp32 --attention plain"), within_32});
  all.push_back({"engine, CUDA, bf16", losses_of(gpu::make_cuda_device(s), *data), within_16});
  all.push_back({"PyTorch, CUDA, bf16",
                 the_gpu().machine ? peer("--device cuda") : json{{"why", the_gpu().why}},
                 within_16});
  const bool good = print(all);
  json result{{"trainings", json::object()}};
  for (const auto& t : all) result["trainings"][t.name] = t.said;
  result["compared"] = std::count_if(all.begin(), all.end(),
                                     [](const training& t) { return t.said.contains("losses"); });
  if (result["compared"] > 1) result["within"] = good;
  return result;
}

}  // namespace troupe::bench
