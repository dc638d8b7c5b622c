#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <tuple>

#include "gpu/cuda/host/device.hpp"
#include "gpu/emulation/counted_machine.hpp"
#include "gpu_training/parts.hpp"

// Each kernel and product of a training step: how often, how much it has to move and to calculate,
// and on a GPU how long it takes and how near that is to what the GPU can do.

namespace troupe::bench {

namespace {

using nlohmann::json;

/// Notes each call, and where there is a clock its time.
class timed_machine final : public gpu::cuda::kernel_interceptor {
 public:
  using kernel_interceptor::kernel_interceptor;

  struct entry {
    gpu::cuda::call what;
    void *from = nullptr, *to = nullptr;
  };
  std::vector<entry> calls;
  bool notes = false;

 private:
  void perform(gpu::cuda::call what, std::function<void(gpu::cuda::machine&)> how) override {
    if (!notes) return how(behind());
    what.arguments.clear();
    entry e{std::move(what)};
    e.from = behind().timing_event();
    how(behind());
    e.to = behind().timing_event();
    calls.push_back(std::move(e));
  }
};

struct line {
  double times = 0, seconds = 0, bytes = 0, flops = 0;  // of a step
};
using lines = std::map<std::tuple<std::string, std::size_t, std::size_t, std::size_t>, line>;

lines lines_of(timed_machine& m, int steps) {
  lines all;
  for (auto& e : m.calls) {
    auto& l = all[{e.what.name, e.what.rows, e.what.columns, e.what.inner}];
    l.times += 1.0 / steps;
    l.bytes += e.what.bytes / steps;
    l.flops += e.what.flops / steps;
    if (e.from == nullptr) continue;
    l.seconds += m.seconds(e.from, e.to) / steps;
    m.forget(e.from);
    m.forget(e.to);
  }
  m.calls.clear();
  return all;
}

json print(const lines& all, const reached& peaks) {
  std::vector<lines::const_iterator> order;
  line sum;
  for (auto i = all.begin(); i != all.end(); ++i) {
    order.push_back(i);
    sum.times += i->second.times;
    sum.seconds += i->second.seconds;
    sum.bytes += i->second.bytes;
    sum.flops += i->second.flops;
  }
  const bool timed = sum.seconds > 0;
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    return timed ? a->second.seconds > b->second.seconds : a->second.bytes > b->second.bytes;
  });
  fmt::print(
      "| kernel | shape | times | GB | GFLOP |{}\n|---|---|---:|---:|---:|{}\n",
      timed ? " ms | of the step | GB/s | of the copies' | TFLOP/s | of the product's |" : "",
      timed ? "---:|---:|---:|---:|---:|---:|" : "");
  auto rows = json::array();
  const auto print_one = [&](const std::string& name, const std::string& shape, const line& l) {
    fmt::print("| {} | {} | {:g} | {:.3f} | {:.1f} |", name, shape, l.times, l.bytes / 1e9,
               l.flops / 1e9);
    json j{{"kernel", name},
           {"shape", shape},
           {"times", l.times},
           {"bytes", l.bytes},
           {"flops", l.flops}};
    if (timed) {
      const double rate = l.bytes / l.seconds / 1e9, speed = l.flops / l.seconds / 1e12;
      fmt::print(" {:.3f} | {:.1f} % | {:.0f} | {:.0f} % | {} | {} |", l.seconds * 1e3,
                 100 * l.seconds / sum.seconds, rate, 100 * rate / peaks.gbytes_s,
                 l.flops > 0 ? fmt::format("{:.0f}", speed) : "",
                 l.flops > 0 ? fmt::format("{:.0f} %", 100 * speed / peaks.tflops) : "");
      j["seconds"] = l.seconds;
      j["of_bandwidth"] = rate / peaks.gbytes_s;
      j["of_arithmetic"] = speed / peaks.tflops;
    }
    fmt::print("\n");
    rows.push_back(std::move(j));
  };
  for (const auto i : order) {
    const auto& [name, r, c, k] = i->first;
    print_one(name, k ? fmt::format("{} x {} x {}", r, c, k) : fmt::format("{} x {}", r, c),
              i->second);
  }
  print_one("all", "", sum);
  if (timed) {
    double min = 0;
    for (const auto& [what, l] : all)
      min += std::max(l.bytes / peaks.gbytes_s / 1e9, l.flops / peaks.tflops / 1e12);
    fmt::print(
        "\nBy the measured peaks, the longer of the two for each line, they need at least "
        "{:.2f} ms: {:.0f} % of what they take.\n",
        min * 1e3, 100 * min / sum.seconds);
  }
  fmt::print("\n");
  return rows;
}

}  // namespace

nlohmann::json measure_kernels(const options& o) {
  fmt::print("## Kernels of a training step\n\n");
  json result{{"models", json::array()}};
  std::shared_ptr<gpu::cuda::machine> gpu = the_gpu().machine;
  reached peaks;
  if (gpu) {
    peaks = measured_peaks(*gpu);
    result["device"] = gpu->name();
    result["reached_tflops"] = peaks.tflops;
    result["reached_gbytes_s"] = peaks.gbytes_s;
    if (peaks.tflops > 0)
      fmt::print(
          "{}: copies within its memory reach {:.0f} GB/s (read and written), a product of "
          "8192 x 8192 x 8192 {:.0f} TFLOP/s.\n",
          gpu->name(), peaks.gbytes_s, peaks.tflops);
  } else {
    gpu = std::make_shared<gpu::cuda::idle_machine>();
    result["why"] = the_gpu().why;
    fmt::print("No times: {}.\n", the_gpu().why);
  }
  fmt::print(
      "Shapes are rows x columns (x inner, of products). GB: what has to be read and "
      "written, each value once; GFLOP: of products and attention, its mask counted.\n\n");
  for (const auto& s : sizes_of(o)) {
    if (o.models.empty() && std::string{s.name} != "124M") continue;  // the others on demand
    const auto spec = spec_of(s, o.rows ? o.rows : s.rows);
    fmt::print("GPT-2 {}, {} rows of {} tokens:\n\n", s.name, spec.rows, s.sequence);
    try {
      const auto timed = std::make_shared<timed_machine>(gpu);
      using first = gpu::cuda::device::first_values;
      gpu::cuda::device d{spec, timed, the_gpu().machine ? first::set : first::none};
      const auto batch = random_batch(spec);
      auto done = train(d, batch, the_gpu().machine ? 5 : 1);
      const int steps = the_gpu().machine ? 5 : 1;
      timed->notes = true;
      if (done) done = train(d, batch, steps);
      if (!done) throw std::runtime_error(done.error().text);
      result["models"].push_back({{"model", s.name},
                                  {"rows", spec.rows},
                                  {"kernels", print(lines_of(*timed, steps), peaks)}});
      o.keep(result);
    } catch (const std::runtime_error& e) {
      fmt::print("{}\n\n", e.what());
    }
    std::fflush(stdout);
  }
  return result;
}

}  // namespace troupe::bench
