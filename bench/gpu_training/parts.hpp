#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gpu/cuda/runtime/machine.hpp"
#include "gpu/device/stage_device.hpp"

// The parts of bench_gpu_training, and their common code. Each part prints tables and returns the
// same as JSON; where it cannot measure on this machine, it prints the reason as a sentence, which
// is "why" in the JSON.

namespace troupe::bench {

struct options {
  std::vector<std::string> models;  // empty: all of GPT-2
  std::uint32_t rows = 0;           // 0: each model's own
  int rounds = 5, steps = 10;
  int losses = 200;  // steps whose losses are compared
  bool peer = true;  // PyTorch, too
  // Called with a part's result so far after each of its rows.
  std::function<void(const nlohmann::json&)> keep = [](const nlohmann::json&) {};
};

/// GPT-2 with a tied head in the sizes that are measured, and on demand "tiny", which an emulated
/// GPU trains in a second.
struct size {
  const char* name;
  std::uint32_t hidden, layers, heads, rows;
  std::vector<std::uint32_t> batches;  // for memory
  std::uint32_t sequence = 1024, words = 50257;
};
std::vector<size> sizes_of(const options& o);
gpu::stage_spec spec_of(const size& s, std::uint32_t rows);

/// Tokens and targets, the same each time.
std::vector<payload> random_batch(const gpu::stage_spec& s);

/// `steps` steps of one micro-batch and its update, with two in flight at any time.
/// Seconds, and the last one's loss; or why it could not go on.
struct trained {
  double seconds = 0, loss = 0;
};
expected<trained> train(gpu::stage_device& d, const std::vector<payload>& batch, int steps);

/// The GPU, opened once for the whole run; or why there is none. Its memory before anything else.
struct opened_gpu {
  std::shared_ptr<gpu::cuda::machine> machine;
  std::string why;
  bool emulated = false;
};
const opened_gpu& the_gpu();
/// The GPU is the tests' emulated one, whose times and driver's memory mean nothing. Before
/// the_gpu().
void use_emulated_gpu();

/// The shipped catalogue's entry for a GPU with that name and memory; nothing if there is none.
struct catalogue_entry {
  std::string name;
  double tflops = 0, gbytes_s = 0;
};
std::optional<catalogue_entry> catalogue_of(const std::string& device, double memory_bytes);

/// Runs bench_gpu_training.py with these arguments. Its JSON; {"why": ...} if it gave none.
nlohmann::json pytorch(const std::string& arguments, int seconds);
/// LAYERS HIDDEN HEADS SEQUENCE ROWS VOCABULARY of bench_gpu_training.py.
std::string pytorch_shape(const gpu::stage_spec& s, std::uint64_t vocabulary);

/// The rates that the GPU reaches in products and in copies within its memory; measured once.
/// 0: emulated.
struct reached {
  double tflops = 0, gbytes_s = 0;
};
reached measured_peaks(gpu::cuda::machine& m);

nlohmann::json measure_speed(const options& o);
nlohmann::json measure_kernels(const options& o);
nlohmann::json measure_memory(const options& o);
nlohmann::json measure_losses(const options& o);
nlohmann::json measure_counts(const options& o);

}  // namespace troupe::bench
