#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <map>

#include "formats/load/load.hpp"
#include "gpu/cuda/host/device.hpp"
#include "gpu/cuda/runtime/calls.hpp"
#include "gpu_training/gpu_code.hpp"
#include "gpu_training/launch_list.hpp"
#include "gpu_training/parts.hpp"

// The cost of a training step by counting alone: the machine code of each kernel, and the bytes and
// operations of each call with the time that they need at least on three GPUs.

namespace troupe::bench {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::uint32_t architecture = 90;
constexpr const char* cards[] = {"A100-80GB", "H100-80GB", "H200-141GB"};

/// The most that a kernel may have when it is compiled for 9.0 by `toolkit`; spills are 0. Another
/// toolkit's compiler makes other code. Products of tensor cores in its loop follow from the
/// source, (16 x 16) x (16 x 8) each: a check of how the code is read.
struct limit {
  const char* kernel;
  std::uint32_t registers, loop, products;
};
constexpr const char* toolkit = "13.0";
constexpr std::uint32_t products_of(std::uint32_t width, std::uint32_t inner, std::uint32_t count) {
  return count * (width / 16) * (inner / 8);
}
constexpr limit limits[] = {
    {"attention<64, 4, 64>", 124, 506, products_of(64, 64, 2)},
    {"attention_queries_backward<64, 4, 32>", 128, 312, products_of(64, 32, 3)},
    {"attention_keys_backward<64, 4, 32>", 167, 403, products_of(64, 32, 4)},
    {"attention<128, 4, 32>", 130, 411, products_of(128, 32, 2)},
    {"attention_queries_backward<128, 4, 32>", 162, 417, products_of(128, 32, 3)},
    {"attention_keys_backward<128, 4, 32>", 244, 535, products_of(128, 32, 4)},
};

std::string short_name(std::string name) {
  for (const std::string part : {"troupe::gpu::cuda::", "_kernel"})
    for (auto at = name.find(part); at != std::string::npos; at = name.find(part))
      name.erase(at, part.size());
  return name;
}

/// Calls of a kernel or product, of one step.
struct line {
  double times = 0, bytes = 0, flops = 0;
  std::array<double, std::size(cards)> roof_s{};
};

struct card {
  std::string name;
  double flops_per_s = 0, bytes_per_s = 0;
};

std::vector<card> known_cards() {
  std::vector<card> found;
  if (const auto all = formats::load_catalogue(formats::configs_directory() / "gpus.yaml"))
    for (const auto* name : cards)
      for (const auto& g : *all)
        if (g.name == name)
          found.push_back({g.name, g.fp16_tflops * 1e12, g.memory_gbytes_s * 1e9});
  return found;
}

/// Passes every call on, and adds what it has to move and to calculate.
class adding_machine final : public gpu::cuda::kernel_interceptor {
 public:
  adding_machine(std::shared_ptr<gpu::cuda::machine> behind, std::vector<card> on)
      : kernel_interceptor{std::move(behind)}, on_{std::move(on)} {}
  std::map<std::string, line> lines;
  line sum;
  bool counts = false;

 private:
  void perform(gpu::cuda::call what, std::function<void(gpu::cuda::machine&)> how) override {
    how(behind());
    if (!counts) return;
    for (auto* l : {&lines[what.name], &sum}) {
      ++l->times;
      l->bytes += what.bytes;
      l->flops += what.flops;
      for (std::size_t i = 0; i < on_.size(); ++i)
        l->roof_s[i] += std::max(what.bytes / on_[i].bytes_per_s, what.flops / on_[i].flops_per_s);
    }
  }
  std::vector<card> on_;
};

json print_calls(const adding_machine& m, const gpu::stage_spec& spec,
                 const std::vector<card>& on) {
  fmt::print("| call | times | GB | GFLOP |");
  for (const auto& c : on) fmt::print(" {} ms |", c.name);
  fmt::print("\n|---|---:|---:|---:|");
  for (std::size_t i = 0; i < on.size(); ++i) fmt::print("---:|");
  fmt::print("\n");
  auto rows = json::array();
  const auto print = [&](const std::string& name, const line& l) {
    fmt::print("| {} | {:g} | {:.3f} | {:.1f} |", name, l.times, l.bytes / 1e9, l.flops / 1e9);
    json j{{"call", name}, {"times", l.times}, {"bytes", l.bytes}, {"flops", l.flops}};
    for (std::size_t i = 0; i < on.size(); ++i) {
      fmt::print(" {:.3f} |", l.roof_s[i] * 1e3);
      j["roof_s"][on[i].name] = l.roof_s[i];
    }
    fmt::print("\n");
    rows.push_back(j);
  };
  std::vector<std::pair<std::string, line>> order{m.lines.begin(), m.lines.end()};
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  for (const auto& [name, l] : order) print(name, l);
  print("all", m.sum);
  json step{{"calls", rows}};
  fmt::print("\nAt these times, each call's longer one of memory and arithmetic:");
  for (std::size_t i = 0; i < on.size(); ++i) {
    const double s = m.sum.roof_s[i];
    const double rate = static_cast<double>(gpu::tokens_of(spec)) / s;
    const double mfu = 3 * gpu::size_of(spec).forward_flops / s / on[i].flops_per_s;
    fmt::print("{} {:.2f} ms, {:.0f} tokens/s, MFU {:.1f} % on {}", i ? ";" : "", s * 1e3, rate,
               100 * mfu, on[i].name);
    step["roof"][on[i].name] = {{"step_s", s}, {"tokens_per_s", rate}, {"mfu", mfu}};
  }
  fmt::print(".\n\n");
  return step;
}

json print_code(const std::vector<kernel_code>& all, const launch_list& launched) {
  fmt::print(
      "| kernel | registers | spills | shared bytes | instructions | in its loop | tensor | shared "
      "| global | special | float | control | others | launches |\n|---|---:|---:|---:|---:|---:|"
      "---:|---:|---:|---:|---:|---:|---:|---:|\n");
  auto rows = json::array();
  for (const auto& [type, k] : launched.kernels) {
    const auto code = std::find_if(all.begin(), all.end(), [&](const kernel_code& c) {
      return c.name.find("run<" + type + ">") != std::string::npos ||
             c.name.find("run<" + type + " >") != std::string::npos;
    });
    if (code == all.end()) continue;
    const auto& l = code->loop;
    const auto name = short_name(type);
    fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", name,
               code->registers, code->spills, k.shared_bytes, code->instructions,
               code->loops ? fmt::format("{}", l.all()) : "no loop", l.tensor, l.shared, l.global,
               l.special, l.floats, l.control, l.others, k.launches);
    rows.push_back({{"kernel", name},
                    {"registers", code->registers},
                    {"spills", code->spills},
                    {"shared_bytes", k.shared_bytes},
                    {"threads", k.threads},
                    {"instructions", code->instructions},
                    {"loops", code->loops},
                    {"loop",
                     {{"all", l.all()},
                      {"tensor", l.tensor},
                      {"shared", l.shared},
                      {"global", l.global},
                      {"special", l.special},
                      {"float", l.floats},
                      {"control", l.control},
                      {"others", l.others}}},
                    {"launches", k.launches}});
  }
  fmt::print("\n");
  return rows;
}

/// A sentence for each kernel that spills, is beyond a limit or is missing; empty: all is within.
std::vector<std::string> beyond(const std::vector<kernel_code>& all) {
  std::vector<std::string> wrong;
  for (const auto& k : all)
    if (k.spills > 0) wrong.push_back(fmt::format("{} spills {} registers", k.name, k.spills));
  for (const auto& limit : limits) {
    const auto code = std::find_if(all.begin(), all.end(), [&](const kernel_code& c) {
      return short_name(c.name).find(fmt::format("run<{}", limit.kernel)) != std::string::npos;
    });
    if (code == all.end()) {
      wrong.push_back(fmt::format("{} is missing", limit.kernel));
      continue;
    }
    const auto loop = code->loop.all();
    if (code->registers > limit.registers || loop > limit.loop)
      wrong.push_back(
          fmt::format("{} has {} registers (limit {}) and {} instructions in its loop (limit {})",
                      limit.kernel, code->registers, limit.registers, loop, limit.loop));
    if (code->loop.tensor != limit.products)
      wrong.push_back(fmt::format("{} has {} products of tensor cores in its loop, not {}",
                                  limit.kernel, code->loop.tensor, limit.products));
  }
  return wrong;
}

/// The CUDA device's library, beside this program or in lib/ beside its folder.
fs::path library() {
  std::error_code error;
  const auto folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  const auto beside = folder / "libtroupe_cuda.so";
  return fs::exists(beside, error) ? beside : folder.parent_path() / "lib/libtroupe_cuda.so";
}

}  // namespace

nlohmann::json measure_counts(const options& o) {
  fmt::print("## A training step by counts\n\n");
  const auto on = known_cards();
  const auto code = read_gpu_code(library(), architecture);
  json result{{"architecture", architecture}, {"toolkit", TROUPE_CUDA_TOOLKIT}};
  const auto widths = std::make_shared<launch_list>();  // of heads that GPT-2 has not, too
  for (const auto width : {64u, 128u}) {
    widths->attention({16, 1, width}, 1, nullptr, nullptr, nullptr);
    widths->attention_backward({16, 1, width}, 1, nullptr, nullptr, nullptr, nullptr, nullptr,
                               nullptr);
  }
  for (auto& [name, k] : widths->kernels) k.launches = 0;
  for (const auto& s : sizes_of(o)) {
    if (o.models.empty() && std::string{s.name} != "124M") continue;  // the others on demand
    const auto spec = spec_of(s, o.rows ? o.rows : s.rows);
    fmt::print("GPT-2 {}, {} rows of 1,024 tokens. Roofs by the catalogue's peaks.\n\n", s.name,
               spec.rows);
    const auto launched = std::make_shared<launch_list>();
    const auto adding = std::make_shared<adding_machine>(launched, on);
    gpu::cuda::device d{spec, adding, gpu::cuda::device::first_values::none};
    launched->kernels.clear();
    adding->counts = true;
    if (const auto done = train(d, random_batch(spec), 1); !done) {
      result["why"] = done.error().text;
      return result;
    }
    auto step = print_calls(*adding, spec, on);
    step["model"] = s.name;
    step["rows"] = spec.rows;
    for (const auto& [name, k] : launched->kernels) widths->kernels[name] = k;
    result["steps"].push_back(step);
  }
  if (!code) {
    fmt::print("No machine code: {}.\n\n", code.error().text);
    result["why"] = code.error().text;
    return result;
  }
  fmt::print(
      "Machine code for compute capability 9.0 by toolkit {}; of the instructions in a kernel's "
      "longest loop, how many of which kind. Launches: a step's, 0 for heads of 128 values.\n\n",
      TROUPE_CUDA_TOOLKIT);
  result["kernels"] = print_code(*code, *widths);
  const std::string version = TROUPE_CUDA_TOOLKIT;
  if (version.rfind(toolkit, 0) != 0) {
    result["limits"] = fmt::format("not compared: they are those of toolkit {}", toolkit);
    fmt::print("Limits were {}.\n\n", result["limits"].get<std::string>());
    return result;
  }
  const auto wrong = beyond(*code);
  result["within"] = wrong.empty();
  for (const auto& w : wrong) fmt::print("Beyond its limit: {}.\n", w);
  if (wrong.empty()) fmt::print("All kernels are within their limits.\n\n");
  return result;
}

}  // namespace troupe::bench
