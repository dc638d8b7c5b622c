// bench_gpu_training [losses] [speed] [kernels] [memory] [counts] [--model NAME]... [--rows N]
//                    [--rounds N] [--no-pytorch] [--json FILE] [--check]
// What there is to measure of training GPT-2 on one GPU, beside PyTorch. Without a GPU each part
// does what can be done without one, says why it does no more, and all ends well. --check: status 1
// if losses differ by more than they may, or a kernel's code is beyond its limit; 77 if there was
// nothing to compare with.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "gpu_training/parts.hpp"

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
      "--rows N, --rounds N, --no-pytorch, --json FILE, --check\n",
      what);
  return 2;
}

}  // namespace

int main(int count, char** arguments) {
  options o;
  std::vector<std::string> wanted;
  std::string file;
  bool check = false;
  for (int i = 1; i < count; ++i) {
    const std::string a = arguments[i];
    const bool more = i + 1 < count;
    if (a == "--model" && more)
      o.models.push_back(arguments[++i]);
    else if (a == "--rows" && more)
      o.rows = static_cast<std::uint32_t>(std::atoi(arguments[++i]));
    else if (a == "--rounds" && more)
      o.rounds = std::max(1, std::atoi(arguments[++i]));
    else if (a == "--json" && more)
      file = arguments[++i];
    else if (a == "--no-pytorch")
      o.peer = false;
    else if (a == "--check")
      check = true;
    else if (std::any_of(std::begin(parts), std::end(parts), [&](auto& p) { return p.name == a; }))
      wanted.push_back(a);
    else
      return refuse(a);
  }
  nlohmann::json all;
  for (const auto& p : parts)
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), p.name) != wanted.end())
      all[p.name] = p.measure(o);
  if (!file.empty() && !(std::ofstream{file} << all.dump(1) << "\n")) {
    fmt::print(stderr, "bench_gpu_training: {} cannot be written\n", file);
    return 1;
  }
  if (!check) return 0;
  bool compared = true, within = true;
  for (const auto* part : {"losses", "counts"}) {
    if (!all.contains(part)) continue;
    compared = compared && all[part].contains("within");
    within = within && all[part].value("within", true);
  }
  return !within ? 1 : compared ? 0 : 77;
}
