// bench_gpu_training [losses] [speed] [kernels] [memory] [--model NAME]... [--rows N] [--rounds N]
//                    [--steps N] [--losses N] [--no-pytorch] [--json FILE] [--check] [--device
//                    NAME]
// Measures the training of GPT-2 on one GPU, beside PyTorch. Without a GPU each part does what can
// be done without one, prints why it does no more, and does not fail. --device emulated: the tests'
// emulated GPU, whose times mean nothing. --check: status 1 if losses differ by more than they may,
// 77 if there was nothing to compare them with.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "gpu_training/parts.hpp"
#include "gpu_training/result_file.hpp"

using namespace troupe::bench;

namespace {

struct part {
  const char* name;
  nlohmann::json (*measure)(const options&);
};
constexpr part parts[] = {{"losses", measure_losses},
                          {"speed", measure_speed},
                          {"kernels", measure_kernels},
                          {"memory", measure_memory},
                          {"counts", measure_counts}};

int refuse(const std::string& what) {
  fmt::print(
      stderr,
      "bench_gpu_training: {} is none of losses, speed, kernels, memory, counts, --model NAME, "
      "--rows N, --rounds N, --steps N, --losses N, --no-pytorch, --json FILE, --check, "
      "--device cuda, --device emulated\n",
      what);
  return 2;
}

struct command {
  options measured;
  std::vector<std::string> parts;  // empty: all
  std::string file;
  bool check = false, emulated = false;
};

/// False: refused, the word that is not known is in `wrong`.
bool read(int count, char** arguments, command& c, std::string& wrong) {
  for (int i = 1; i < count; ++i) {
    const std::string a = wrong = arguments[i];
    const bool more = i + 1 < count;
    const auto number = [&] { return std::max(1, std::atoi(arguments[++i])); };
    if (a == "--model" && more)
      c.measured.models.push_back(arguments[++i]);
    else if (a == "--rows" && more)
      c.measured.rows = static_cast<std::uint32_t>(std::max(0, std::atoi(arguments[++i])));
    else if (a == "--rounds" && more)
      c.measured.rounds = number();
    else if (a == "--steps" && more)
      c.measured.steps = number();
    else if (a == "--losses" && more)
      c.measured.losses = number();
    else if (a == "--json" && more)
      c.file = arguments[++i];
    else if (a == "--no-pytorch")
      c.measured.peer = false;
    else if (a == "--check")
      c.check = true;
    else if (a == "--device" && more) {
      wrong += std::string{" "} + arguments[++i];
      c.emulated = wrong == "--device emulated";
      if (!c.emulated && wrong != "--device cuda") return false;
    } else if (std::any_of(std::begin(parts), std::end(parts),
                           [&](auto& p) { return a == p.name; }))
      c.parts.push_back(a);
    else
      return false;
  }
  return true;
}

int measure(command c) {
  result_file file{c.file};
  bool compared = true, within = true;
  if (c.emulated) use_emulated_gpu();
  for (const auto& p : parts) {
    if (!c.parts.empty() && std::find(c.parts.begin(), c.parts.end(), p.name) == c.parts.end())
      continue;
    file.put(p.name, nlohmann::json::object(), false);
    c.measured.keep = [&](const nlohmann::json& so_far) { file.put(p.name, so_far, false); };
    const auto result = p.measure(c.measured);
    file.put(p.name, result, true);
    if (p.measure != measure_losses && p.measure != measure_counts) continue;
    compared = compared && result.contains("within");
    within = within && result.value("within", true);
  }
  if (!c.check) return 0;
  return !within ? 1 : compared ? 0 : 77;
}

}  // namespace

int main(int count, char** arguments) {
  command c;
  std::string wrong;
  if (!read(count, arguments, c, wrong)) return refuse(wrong);
  try {
    return measure(std::move(c));
  } catch (const std::runtime_error& e) {
    fmt::print(stderr, "bench_gpu_training: {}\n", e.what());
    return 1;
  }
}
