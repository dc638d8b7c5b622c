#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "gpu/cuda/host/device.hpp"
#include "gpu/emulation/counted_machine.hpp"
#include "gpu_training/parts.hpp"
#include "planners/model/stage_memory.hpp"

// MARP's prediction compared to the memory of real trainings: this engine's and PyTorch's.

namespace troupe::bench {

namespace {

using nlohmann::json;

constexpr int peak_seconds = 90;

/// Bytes that the stage asks of a GPU in a few steps of training. Needs none: nothing is computed,
/// and the memory is only counted.
std::uint64_t asked_for(const gpu::stage_spec& spec) {
  const auto count = std::make_shared<gpu::cuda::taken_memory>();
  gpu::cuda::device d{spec,
                      std::make_shared<gpu::cuda::counting_machine>(
                          std::make_shared<gpu::cuda::idle_machine>(), count),
                      gpu::cuda::device::first_values::none};
  const auto batch = random_batch(spec);
  for (int i = 0; i < 3; ++i) train(d, batch, 1);  // one step after another
  return count->bytes + gpu::cuda::workspace_bytes;
}

/// The same on the GPU, by its driver: the increase, and the total.
json really(const gpu::stage_spec& spec) {
  auto& gpu = *the_gpu().machine;
  const auto before = gpu.memory();
  const auto count = std::make_shared<gpu::cuda::taken_memory>();
  try {
    gpu::cuda::device d{spec,
                        std::make_shared<gpu::cuda::counting_machine>(the_gpu().machine, count),
                        gpu::cuda::device::first_values::none};
    const auto batch = random_batch(spec);
    for (int i = 0; i < 3; ++i)
      if (const auto done = train(d, batch, 1); !done) return {{"why", done.error().text}};
    const auto now = gpu.memory();
    json found{{"asked_bytes", count->bytes + gpu::cuda::workspace_bytes}};
    if (now.total_bytes > 0) {
      found["driver_added_bytes"] = before.free_bytes - now.free_bytes;
      found["driver_used_bytes"] = now.total_bytes - now.free_bytes;
    }
    return found;
  } catch (const std::runtime_error& e) {
    return {{"why", e.what()}};
  }
}

/// The paper's accuracy.
double accuracy(double predicted, double real) {
  return 1 - std::abs(predicted - real) / real;
}

/// Columns of the table: a name, and where its bytes are.
struct column {
  const char* name;
  const char* who;
  const char* bytes;
};
constexpr column columns[] = {
    {"engine asks", "engine", "asked_bytes"},
    {"engine, driver", "engine", "driver_used_bytes"},
    {"PyTorch, plain attention", "pytorch_plain", "peak_allocated_bytes"},
    {"... reserved", "pytorch_plain", "peak_reserved_bytes"},
    {"PyTorch, fused attention", "pytorch_fused", "peak_allocated_bytes"},
    {"... reserved", "pytorch_fused", "peak_reserved_bytes"},
};

void print(const json& rows, json& means) {
  std::vector<column> there;
  for (const auto& c : columns)
    for (const auto& r : rows)
      if (r.contains(c.who) && r[c.who].contains(c.bytes)) {
        there.push_back(c);
        break;
      }
  fmt::print("| model | rows | MARP GB |");
  for (const auto& c : there) fmt::print(" {} GB | accuracy |", c.name);
  fmt::print("\n|---|---:|---:|");
  for (std::size_t i = 0; i < there.size(); ++i) fmt::print("---:|---:|");
  std::vector<double> sums(there.size());
  std::vector<int> counts(there.size());
  for (const auto& r : rows) {
    const double predicted = r["marp_bytes"];
    fmt::print("\n| {} | {} | {:.2f} |", r["model"].get<std::string>(), r["rows"].get<int>(),
               predicted / 1e9);
    for (std::size_t i = 0; i < there.size(); ++i) {
      const auto& c = there[i];
      if (!r.contains(c.who) || !r[c.who].contains(c.bytes)) {
        fmt::print(" {} | |", r.contains(c.who) ? r[c.who].value("why", "") : "");
        continue;
      }
      const double real = r[c.who][c.bytes], a = accuracy(predicted, real);
      fmt::print(" {:.2f} | {:.1f} % |", real / 1e9, 100 * a);
      sums[i] += a;
      ++counts[i];
    }
  }
  fmt::print("\n| mean | | |");
  for (std::size_t i = 0; i < there.size(); ++i) {
    fmt::print(" | {:.1f} % |", 100 * sums[i] / counts[i]);
    means[fmt::format("{} {}", there[i].who, there[i].bytes)] = sums[i] / counts[i];
  }
  fmt::print("\n\n");
}

}  // namespace

nlohmann::json measure_memory(const options& o) {
  fmt::print("## MARP's prediction and what training takes\n\n");
  const bool gpu = the_gpu().machine != nullptr;
  fmt::print(
      "Training on one GPU, 1,024 tokens a row (tiny: 32), one micro-batch a step. Engine: what it "
      "asks of the GPU, and\nthe driver's count of all that is in use. Accuracy: 1 - "
      "|predicted - real| / real.\n");
  json result{{"rows", json::array()}, {"means", json::object()}};
  if (!gpu) {
    fmt::print(
        "No GPU is involved: these are the bytes that the engine asks for, counted over a "
        "machine that does nothing;\nthe driver's context is not in them. ({}.)\n",
        the_gpu().why);
    result["why"] = the_gpu().why;
  }
  fmt::print("\n");
  std::string no_peer = gpu && o.peer ? "" : "not measured";
  for (const auto& s : sizes_of(o))
    for (const auto rows : s.batches) {
      const auto spec = spec_of(s, rows);
      json row{{"model", s.name},
               {"rows", rows},
               {"marp_bytes", planners::marp_memory(spec.model, rows, 1, 1).total()}};
      row["engine"] = gpu ? really(spec) : json{{"asked_bytes", asked_for(spec)}};
      for (const std::string kind : {"plain", "fused"}) {
        if (!no_peer.empty()) break;
        const auto reply =
            pytorch(fmt::format("train {} --steps 1 --rounds 1 --warm 2 --compile 0 --attention {}",
                                pytorch_shape(spec, spec.model.vocabulary), kind),
                    peak_seconds);
        if (!reply.contains("version")) no_peer = reply.value("why", "PyTorch is not there");
        row["pytorch_" + kind] = reply;
      }
      result["rows"].push_back(row);
      o.keep(result);
    }
  if (gpu && o.peer && !no_peer.empty()) fmt::print("PyTorch: {}.\n\n", no_peer);
  print(result["rows"], result["means"]);
  std::fflush(stdout);
  return result;
}

}  // namespace troupe::bench
