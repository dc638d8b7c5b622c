// The cost of a checkpoint in each iteration for a training of the built-in model on a CPU: none,
// written while the stage waits, and written behind, on this disk and on a store of 20 MB/s. The
// device and the writer are those of a stage; the order of operations is its own.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "gpu/device/stage_device.hpp"
#include "gpu/model/checkpoint_folders.hpp"
#include "gpu/saving/checkpoint_writer.hpp"
#include "gpu/saving/state_copy.hpp"
#include "harness/clock.hpp"
#include "harness/runs.hpp"

using namespace troupe;
using namespace troupe::bench;

namespace {

namespace fs = std::filesystem;
namespace op = gpu::operations;

enum class way { none, synchronous, behind };

gpu::stage_spec small_gpt() {
  gpu::stage_spec s;
  auto& m = s.model;
  m.name = "small", m.family = "gpt";
  m.hidden = 256, m.layers = 4, m.heads = 4, m.sequence = 64, m.vocabulary = 256;
  s.sublayers = 2 * m.layers;
  s.has_embedding = s.has_head = true;
  s.rows = 4;
  return s;
}

struct measured {
  std::vector<double> stalls_ms, iterations_ms;
  double cpu_ms = 0;  // an iteration
  std::size_t saved = 0, skipped = 0;
};

class training {
 public:
  training(const gpu::stage_spec& s, const fs::path& root, double store_mb_s)
      : spec_{s}, root_{root}, store_mb_s_{store_mb_s} {
    auto made = gpu::make_cpu_device(s);
    if (!made) std::exit((fmt::print(stderr, "{}\n", made.error().text), 2));
    device_ = std::move(*made);
    copied_ = dynamic_cast<gpu::member_device*>(device_.get());
  }

  measured run(way how, std::size_t iterations) {
    measured m;
    const double cpu_s = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    for (std::size_t i = 1; i <= iterations; ++i) {
      const double began_s = clock_s(CLOCK_MONOTONIC);
      iterate();
      const double updated_s = clock_s(CLOCK_MONOTONIC);
      if (how != way::none) save(how, i, m);
      const double now_s = clock_s(CLOCK_MONOTONIC);
      m.stalls_ms.push_back(1e3 * (now_s - updated_s));
      m.iterations_ms.push_back(1e3 * (now_s - began_s));
    }
    m.cpu_ms = 1e3 * (clock_s(CLOCK_PROCESS_CPUTIME_ID) - cpu_s) / static_cast<double>(iterations);
    while (writing_) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    return m;
  }

 private:
  gpu::outcome execute(const std::function<void(gpu::stage_device::done)>& submit) {
    std::promise<expected<gpu::outcome>> result;
    submit([&](expected<gpu::outcome> r) { result.set_value(std::move(r)); });
    auto r = result.get_future().get();
    if (!r) std::exit((fmt::print(stderr, "{}\n", r.error().text), 2));
    return std::move(*r);
  }
  void execute(gpu::operation o) {
    execute([&](auto done) { device_->submit(std::move(o), std::move(done)); });
  }

  void iterate() {
    const auto tokens = payload{std::vector<std::uint32_t>(spec_.rows * spec_.model.sequence, 7)};
    execute({op::forward{0, true, tokens, tokens}});
    execute({op::backward{0}});
    execute({op::update{}});
  }

  /// A store that takes so many MB in a second, after the disk of this machine has them.
  void wait_for_store(const fs::path& folder) const {
    if (store_mb_s_ <= 0) return;
    double mb = 0;
    for (const auto& file : fs::directory_iterator{folder}) mb += 1e-6 * double(file.file_size());
    std::this_thread::sleep_for(std::chrono::duration<double>{mb / store_mb_s_});
  }

  void save(way how, std::size_t i, measured& m) {
    const auto folder = gpu::checkpoint_directory(root_, i);
    if (how == way::synchronous) {
      execute({op::save{folder.string()}});
      wait_for_store(folder);
      ++m.saved;
      return;
    }
    if (writing_) {
      ++m.skipped;
      return;
    }
    auto copy = execute([&](auto done) { copied_->submit_values(std::move(done)); });
    writing_ = true;
    ++m.saved;
    writer_->submit(
        [this, folder, copy = std::move(copy.of<op::values>())] {
          auto ok = gpu::save_copy(folder, spec_, copy);
          wait_for_store(folder);
          return ok;
        },
        [this](const expected<void>& ok) {
          if (!ok) std::exit((fmt::print(stderr, "{}\n", ok.error().text), 2));
          writing_ = false;
        });
  }

  gpu::stage_spec spec_;
  fs::path root_;
  double store_mb_s_ = 0;
  std::unique_ptr<gpu::stage_device> device_;
  gpu::member_device* copied_ = nullptr;
  std::atomic<bool> writing_ = false;
  std::shared_ptr<gpu::checkpoint_writer> writer_ = gpu::make_checkpoint_writer();
};

double quantile(std::vector<double> all, double part) {
  std::ranges::sort(all);
  return all[static_cast<std::size_t>(part * static_cast<double>(all.size() - 1))];
}

}  // namespace

int main(int count, char** words) {
  const std::size_t iterations = count > 1 ? std::strtoul(words[1], nullptr, 10) : 40;
  const auto spec = small_gpt();
  const auto size = gpu::size_of(spec);
  fmt::print("{:.2f} M parameters, a checkpoint of {:.1f} MB after each of {} iterations\n",
             1e-6 * double(size.own_parameters + size.tied_parameters),
             12e-6 * double(size.own_parameters), iterations);
  fmt::print("{:<8}{:<13}{:>10}{:>12}{:>12}{:>12}{:>10}{:>7}{:>9}\n", "store", "written",
             "ms/iter.", "stall p50", "stall p90", "mean stall", "CPU ms", "saved", "skipped");
  for (const double mb_s : {0.0, 20.0})
    for (const auto how : {way::none, way::synchronous, way::behind}) {
      if (mb_s > 0 && how == way::none) continue;
      const scratch folder;
      training t{spec, folder.path(), mb_s};
      t.run(how, 3);
      const auto m = t.run(how, mb_s > 0 ? std::min<std::size_t>(iterations, 10) : iterations);
      double stall_ms = 0;
      for (const auto s : m.stalls_ms) stall_ms += s / static_cast<double>(m.stalls_ms.size());
      fmt::print("{:<8}{:<13}{:>10.1f}{:>12.2f}{:>12.2f}{:>12.2f}{:>10.1f}{:>7}{:>9}\n",
                 mb_s > 0 ? "20 MB/s" : "disk",
                 how == way::none     ? "none"
                 : how == way::behind ? "behind"
                                      : "synchronous",
                 median(m.iterations_ms), quantile(m.stalls_ms, 0.5), quantile(m.stalls_ms, 0.9),
                 stall_ms, m.cpu_ms, m.saved, m.skipped);
    }
}
