// bench_gpu_training [losses] [speed] [kernels] [memory] [--model NAME]... [--rows N] [--rounds N]
//                    [--no-pytorch] [--json FILE] [--check]
// What there is to measure of training GPT-2 on one GPU, beside PyTorch. Without a GPU each part
// does what can be done without one, says why it does no more, and all ends well. --check: status 1
// if losses differ by more than they may, 77 if there was nothing to compare them with.
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
                          {"memory", measure_memory}};

int refuse(const std::string& what) {
  fmt::print(stderr,
             "bench_gpu_training: {} is none of losses, speed, kernels, memory, --model NAME, "
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
    else if (a == "losses" || a == "speed" || a == "kernels" || a == "memory")
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
  if (!check || !all.contains("losses")) return 0;
  const auto& losses = all["losses"];
  if (losses.contains("why") || losses["compared"] < 2) return 77;
  return losses["within"] ? 0 : 1;
}
