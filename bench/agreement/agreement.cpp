// bench_agreement [ROUNDS] [JOB...]: the same training as processes on this machine, over an
// emulated WAN, and in virtual time with the stages' times that a real run measured. Prints both
// iteration times for each schedule; ends with 1 if any two differ by more than 5 %.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/foreign_load.hpp"
#include "harness/runs.hpp"

using namespace troupe::bench;

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double max_percent = 5;
constexpr double max_foreign_percent = 3;  // of all processors: more, and a run is done again
constexpr int max_tries = 4;
const std::vector<std::string> schedules{"gpipe", "megatron", "varuna", "atlas"};

/// The JSON that `troupe train` prints.
json trained(const scratch& in, const std::string& arguments) {
  return troupe_json(in, "train " + arguments);
}

double iteration_ms(const json& run) {
  return run["iteration_s"]["p50"].get<double>() * 1e3;
}

struct both {
  // By round; own: played from the times of that run itself.
  std::vector<double> real_ms, virtual_ms, percent, own_percent, foreign;
};

/// One schedule, `rounds` times really and virtually. Each run is planned from, and compared with,
/// the times of the run just before it, and is the next one's profile: the machine's own speed
/// changes from minute to minute, and a step up in one round is a step down in another. A run in
/// which others were busy is done again.
both chain(const scratch& in, const std::string& job, const std::string& schedule, int rounds) {
  const auto how = fmt::format("'{}' --schedule {}", job, schedule);
  const auto keep = [&](const char* name, const json& run) { return in.write(name, run.dump()); };
  const auto really = [&](const std::string& more, double& percent) {
    for (int tries = 1;; ++tries) {
      const foreign_load others;
      auto run = trained(in, how + more + " --world local");
      percent = others.percent();
      if (percent <= max_foreign_percent || tries == max_tries) return run;
    }
  };
  const auto played_ms = [&](const std::string& times) {
    return iteration_ms(trained(in, fmt::format("{} --profile '{}' --world virtual --cluster '{}'",
                                                how, times, TROUPE_BENCH_CLUSTER)));
  };
  both r;
  double percent = 0;
  auto before = keep("before.json", really("", percent));
  for (int i = 0; i < rounds; ++i) {
    const auto real = really(fmt::format(" --profile '{}'", before), percent);
    r.real_ms.push_back(iteration_ms(real));
    r.virtual_ms.push_back(played_ms(before));
    r.percent.push_back(100 * (r.virtual_ms.back() / r.real_ms.back() - 1));
    before = keep("before.json", real);
    r.own_percent.push_back(100 * (played_ms(before) / r.real_ms.back() - 1));
    r.foreign.push_back(percent);
  }
  return r;
}

bool agrees(const scratch& in, const std::string& job, int rounds) {
  fmt::print(
      "{}, median of {} rounds:\n\n"
      "| schedule | real ms | virtual ms | difference | of the rounds | by its own times | of the "
      "rounds | others' load |\n|---|---:|---:|---:|---:|---:|---:|---:|\n",
      fs::path{job}.filename().string(), rounds);
  bool all = true;
  for (const auto& s : schedules) {
    const auto r = chain(in, job, s, rounds);
    const double percent = median(r.percent);
    all = all && std::abs(percent) <= max_percent;
    const auto [low, high] = std::minmax_element(r.percent.begin(), r.percent.end());
    const auto [own_low, own_high] =
        std::minmax_element(r.own_percent.begin(), r.own_percent.end());
    fmt::print(
        "| {} | {:.0f} | {:.0f} | {:+.1f} % | {:+.1f} to {:+.1f} % | {:+.1f} % | {:+.1f} to "
        "{:+.1f} % | {:.1f} % |\n",
        s, median(r.real_ms), median(r.virtual_ms), percent, *low, *high, median(r.own_percent),
        *own_low, *own_high, *std::max_element(r.foreign.begin(), r.foreign.end()));
  }
  fmt::print("\n");
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  std::vector<std::string> jobs;
  for (int i = 2; i < argc; ++i) jobs.push_back(fs::absolute(argv[i]).string());
  if (jobs.empty())
    for (const auto* name : {"compute.yaml", "transfer.yaml"})
      jobs.push_back((fs::path{TROUPE_BENCH_JOBS} / name).string());
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // the run takes minutes
  const scratch in;
  bool all = true;
  for (const auto& job : jobs) all = agrees(in, job, rounds) && all;
  fmt::print("{} at most {:g} % everywhere.\n", all ? "They differ by" : "They do not differ by",
             max_percent);
  return all ? 0 : 1;
}
