#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <semaphore>

#include "formats/load/gpu_names.hpp"
#include "formats/load/load.hpp"
#include "gpu/cuda/host/device.hpp"
#include "gpu/emulation/emulated_machine.hpp"
#include "gpu/model/parameters.hpp"
#include "gpu_training/parts.hpp"
#include "harness/runs.hpp"
#include "harness/tokens.hpp"
#include "messages/base/random.hpp"

namespace troupe::bench {

namespace fs = std::filesystem;
namespace step = gpu::operations;

std::vector<size> sizes_of(const options& o) {
  std::vector<size> all{{"124M", 768, 12, 12, 16, {4, 8, 16, 32}},
                        {"350M", 1024, 24, 16, 8, {2, 4, 8, 16}},
                        {"774M", 1280, 36, 20, 4, {1, 2, 4, 8}},
                        {"tiny", 64, 2, 4, 2, {1, 2}, 32, 250}};
  std::erase_if(all, [&](const size& s) {
    if (o.models.empty()) return std::string{s.name} == "tiny";
    return std::find(o.models.begin(), o.models.end(), s.name) == o.models.end();
  });
  return all;
}

gpu::stage_spec spec_of(const size& s, std::uint32_t rows) {
  gpu::stage_spec spec;
  spec.model.name = fmt::format("GPT-2 {}", s.name);
  spec.model.hidden = s.hidden;
  spec.model.layers = s.layers;
  spec.sublayers = 2 * s.layers;
  spec.model.heads = s.heads;
  spec.model.sequence = s.sequence;
  spec.model.vocabulary = s.words;
  spec.has_embedding = spec.has_head = true;
  spec.rows = rows;
  return spec;
}

std::vector<payload> random_batch(const gpu::stage_spec& s) {
  const auto tokens = gpu::tokens_of(s);
  return {random_tokens(tokens, s.model.vocabulary, 1),
          random_tokens(tokens, s.model.vocabulary, 2)};
}

expected<trained> train(gpu::stage_device& d, const std::vector<payload>& batch, int steps) {
  struct state {
    std::counting_semaphore<> room{2};
    std::promise<void> over;
    std::optional<reason> wrong;  // answers come from one thread, in order
    double loss = 0;
    int left = 0;
  } now;
  now.left = steps;
  const auto completed = [&now](const expected<gpu::outcome>& r) {
    if (!r && !now.wrong) now.wrong = r.error();
  };
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) {
    now.room.acquire();
    d.submit({step::forward{.keep = true, .input = batch[0], .targets = batch[1]}},
             [&now, completed](expected<gpu::outcome> r) {
               completed(r);
               if (r) now.loss = r->of<step::forward>().loss;
             });
    d.submit({step::backward{}}, completed);
    d.submit({step::update{}}, [&now, completed](const auto& r) {
      completed(r);
      const bool last = --now.left == 0;
      now.room.release();
      if (last) now.over.set_value();
    });
  }
  now.over.get_future().wait();
  if (now.wrong) return refuse(*now.wrong);
  return trained{std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
                 now.loss};
}

namespace {
bool emulates = false;
}

void use_emulated_gpu() {
  emulates = true;
}

const opened_gpu& the_gpu() {
  static const opened_gpu gpu = [] {
    if (emulates) return opened_gpu{test::emulated_machine(), "", true};
    auto m = gpu::cuda::open_machine_here(0);
    return m ? opened_gpu{*m, ""} : opened_gpu{nullptr, m.error().text};
  }();
  return gpu;
}

namespace {

fs::path script() {
  std::error_code error;
  const auto folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  const auto bundled = folder / "../share/troupe/bench/bench_gpu_training.py";
  return fs::exists(bundled, error) ? bundled : fs::path{TROUPE_BENCH_GPU_PYTORCH};
}

/// The last line of a Python traceback names the error.
std::string last_line_of(const fs::path& file) {
  std::ifstream in{file};
  std::string last = "it says nothing";
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) last = line;
  return last.substr(0, 300);
}

}  // namespace

std::optional<catalogue_entry> catalogue_of(const std::string& device, double memory_bytes) {
  const auto all = formats::load_catalogue(formats::configs_directory() / "gpus.yaml");
  if (!all) return std::nullopt;
  const auto* type = formats::type_of_device(*all, device, memory_bytes);
  if (type == nullptr) return std::nullopt;
  return catalogue_entry{type->name, type->fp16_tflops, type->memory_gbytes_s};
}

nlohmann::json pytorch(const std::string& arguments, int seconds) {
  const scratch folder;
  const auto log = folder.path("errors");
  const auto* wish = std::getenv("PYTHON");
  std::string why = "there is no python3 with PyTorch";
  for (const std::string python : {wish ? wish : "python3", "/usr/bin/python3"}) {
    // In the foreground, so that it ends when this program's own process group is ended.
    const auto command = fmt::format("timeout --foreground -k 5 {} {} '{}' {} 2>'{}'", seconds,
                                     python, script().string(), arguments, log);
    const auto [status, text] = printed_by(command);
    if (status == -1) break;
    auto reply = nlohmann::json::parse(text, nullptr, false);
    if (reply.is_object()) return reply;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 124)
      return {{"why", fmt::format("PyTorch took longer than {} s", seconds)}};
    if (std::system(fmt::format("{} -c 'import torch' >/dev/null 2>&1", python).c_str()) == 0)
      return {{"why", fmt::format("PyTorch failed: {}", last_line_of(log))}};
  }
  return {{"why", why}};
}

std::string pytorch_shape(const gpu::stage_spec& s, std::uint64_t vocabulary) {
  return fmt::format("{} {} {} {} {} {}", s.model.layers, s.model.hidden, s.model.heads,
                     s.model.sequence, s.rows, vocabulary);
}

reached measured_peaks(gpu::cuda::machine& m) {
  using namespace gpu::cuda;
  if (the_gpu().emulated) return {};
  const auto best = [&](auto ask) {
    for (int i = 0; i < 3; ++i) ask();
    double min = 1e30;
    for (int i = 0; i < 10; ++i) {
      auto* before = m.timing_event();
      ask();
      auto* after = m.timing_event();
      if (before == nullptr) return 0.0;
      min = std::min(min, m.seconds(before, after));
      m.forget(before);
      m.forget(after);
    }
    return min;
  };
  constexpr std::size_t n = 8192, bytes = std::size_t{1} << 30;
  std::vector<void*> memory;
  for (const auto size : {2 * n * n, 2 * n * n, 2 * n * n, bytes, bytes})
    memory.push_back(m.take(size));
  // A GPU is quicker with zeros than it ever is in training.
  auto* some = static_cast<bf16*>(m.take_host(2 * n * n));
  random_source random{1};
  for (std::size_t i = 0; i < n * n; ++i)
    some[i] = to_bf16(static_cast<float>(random.uniform() - 0.5));
  for (std::size_t i = 0; i < 3; ++i) m.copy_in(memory[i], some, 2 * n * n);
  m.wait(m.record_event());
  m.give_host(some);
  reached r;
  const auto* a = static_cast<const bf16*>(memory[0]);
  const auto* b = static_cast<const bf16*>(memory[1]);
  const double product_s = best([&] {
    product p;
    p.a = {a, n, n};
    p.b = {b, n, n};
    p.narrow = static_cast<bf16*>(memory[2]);
    p.stride = n;
    m.multiply(p);
  });
  const double copy_s = best([&] { m.copy(memory[3], memory[4], bytes); });
  m.wait(m.record_event());
  for (auto* p : memory) m.give(p);
  if (product_s > 0) r.tflops = 2.0 * n * n * n / product_s / 1e12;
  if (copy_s > 0) r.gbytes_s = 2.0 * bytes / copy_s / 1e9;
  return r;
}

}  // namespace troupe::bench
