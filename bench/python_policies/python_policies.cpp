// bench_python_policies [JOBS] [--json] [--check]: one decision of shortest_first in Python
// (examples/python_policy) beside the same policy in C++ (examples/my_policy), about a queue of
// JOBS (1,000) on a busy cluster of 1,000 GPUs. Medians of runs that take turns. --check: status 1
// where the limit is missed: at most 5 times the time in C++ plus 1 ms.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "cli/options/policy_option.hpp"
#include "decisions/snapshots.hpp"
#include "harness/runs.hpp"

namespace troupe::bench {
namespace {

constexpr int runs = 51;
constexpr double max_ratio = 5, more_s = 1e-3;

double decide_s(const planners::policy& by, const timing_event& m, std::size_t& decisions) {
  random_source random{1};
  const auto start = std::chrono::steady_clock::now();
  decisions = by.decide(m.snapshot(), random).size();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct options {
  std::uint32_t jobs = 1'000;
  bool json = false, check = false;
};

options read(int argc, char** argv) {
  options o;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--json")
      o.json = true;
    else if (word == "--check")
      o.check = true;
    else
      o.jobs = static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10));
  }
  return o;
}

/// Complains, with the status of a benchmark that could not run.
int failed(const reason& why) {
  fmt::print(stderr, "{}\n", why.text);
  return 2;
}

int run(const options& o) {
  const auto python = cli::find_policy(IN_PYTHON);
  if (!python) return failed(python.error());
  const auto cpp = cli::find_policy(MY_PLUGIN);
  if (!cpp) return failed(cpp.error());
  const auto made = make_moment(1'000, o.jobs, 42);
  if (!made) return failed(made.error());
  std::vector<double> of_python, of_cpp;
  std::size_t decided_in_python = 0, decided_in_cpp = 0;
  for (int i = 0; i < runs; ++i) {
    of_cpp.push_back(decide_s(**cpp, **made, decided_in_cpp));
    of_python.push_back(decide_s(**python, **made, decided_in_python));
  }
  const double python_s = median(std::move(of_python)), cpp_s = median(std::move(of_cpp));
  const double limit_s = max_ratio * cpp_s + more_s;
  const bool holds = python_s <= limit_s && decided_in_python == decided_in_cpp;
  if (o.json)
    fmt::print("{}\n", nlohmann::json{{"jobs", o.jobs},
                                      {"decisions", decided_in_python},
                                      {"python", {{"decide_s", python_s}}},
                                      {"cpp", {{"decide_s", cpp_s}}},
                                      {"limit_s", limit_s},
                                      {"holds", holds}}
                           .dump(2));
  else
    fmt::print("{} jobs, {} decisions: {:.3f} ms in Python, {:.3f} ms in C++; at most {:.3f}: {}\n",
               o.jobs, decided_in_python, python_s * 1e3, cpp_s * 1e3, limit_s * 1e3,
               holds ? "yes" : "NO");
  return o.check && !holds ? 1 : 0;
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) {
  return troupe::bench::run(troupe::bench::read(argc, argv));
}
