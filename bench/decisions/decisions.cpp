// bench_decisions [LIMIT_S [PHILLY]]: what deciding costs, HAS and the whole frenzy policy beside
// Sia's integer program, on the same snapshots.
//
// "has" is has() for one job, "arrival" is frenzy's decide() with that job alone in the queue: each
// the median over 101 passes of the mean over all jobs of the queue. "queue" is decide() for the
// whole queue, "Sia" is make_sia_problem and solve_sia for the same whole queue (in a run the
// policy takes its first 256 jobs at most): medians of up to 101 and of up to 5 runs. The like of a
// round of Sia is frenzy's pass over the queue; "Sia/arrival" says what deciding at once about one
// job saves. Sia runs in a process of its own, which is ended when it has taken LIMIT_S (60)
// seconds.
//
// Below the table, the default policy beside frenzy: planning one job on 100,000 GPUs, and a whole
// simulation of PHILLY (the trace as its artifact has it), medians of 3.
//
// bench_decisions titan [INSTANCES] [--json] [--check]: TITAN's program instead, for 100 instances
// of 320 waiting jobs: (1) to (4), and (5) to (11) with candidates for unions, beside the same
// programs given to CBC as they are. --check: status 1 where a limit is missed.

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "default_policy.hpp"
#include "harness/runs.hpp"
#include "planners/baselines/sia.hpp"
#include "planners/plans/has.hpp"
#include "planners/policy/policy.hpp"
#include "snapshots.hpp"
#include "titan_programs.hpp"

namespace troupe::bench {
namespace {

using namespace planners;

template <class F>
double seconds(F&& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The median of that many runs, or of fewer if they take more than a second.
template <class F>
double median_s(int runs, F&& call) {
  std::vector<double> each;
  double sum = 0;
  while (runs-- > 0 && sum < 1) sum += each.emplace_back(seconds(call));
  return median(std::move(each));
}

std::size_t sink = 0;  // results, so that the compiler keeps the computation

double has_s(const timing_event& m) {
  return median_s(101,
                  [&] {
                    for (const auto& [id, j] : m.waiting) {
                      const auto choice = has(m.cluster, m.idle, *j.plans);
                      sink += choice ? choice->where.size() : 1;
                    }
                  }) /
         static_cast<double>(m.waiting.size());
}

double arrival_s(const timing_event& m, const policy& frenzy) {
  std::vector<job_views> alone;
  for (const auto& job : m.waiting) alone.push_back({job});
  random_source random{1};
  return median_s(101,
                  [&] {
                    for (const auto& waiting : alone) {
                      const snapshot s{m.now_s, m.cluster, m.idle, waiting, m.running};
                      sink += frenzy.decide(s, random).size();
                    }
                  }) /
         static_cast<double>(alone.size());
}

double queue_s(const timing_event& m, const policy& frenzy) {
  random_source random{1};
  return median_s(101, [&] { sink += frenzy.decide(m.snapshot(), random).size(); });
}

/// Nothing: not done within the limit.
std::optional<double> sia_s(const timing_event& m, unsigned limit_s) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const auto child = fork();
  if (child == 0) {
    alarm(limit_s);
    std::vector<double> each;
    double sum = 0;
    while (each.size() < 5 &&
           sum * 2 < limit_s) {  // another run may take as long as the previous ones
      sia_options whole;
      whole.max_waiting = static_cast<std::uint32_t>(m.waiting.size());
      sum += each.emplace_back(seconds(
          [&] { sink += solve_sia(make_sia_problem(m.snapshot(), whole), whole).taken.size(); }));
    }
    const double s = median(std::move(each));
    _exit(write(ends[1], &s, sizeof s) == sizeof s ? 0 : 1);
  }
  close(ends[1]);
  double s = 0;
  const bool complete = read(ends[0], &s, sizeof s) == sizeof s;
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return complete ? std::optional{s} : std::nullopt;
}

struct row {
  double has_us, arrival_us;
  double arrival_ratio, queue_ratio;  // Sia's round over these
};

std::optional<row> measure(std::uint32_t gpus, std::uint32_t queue, unsigned limit_s) {
  const auto made = make_moment(gpus, queue, 42);
  if (!made) {
    fmt::print("{:>8} {:>6} skipped: {}\n", gpus, queue, made.error().text);
    return {};
  }
  const auto& m = **made;
  const auto frenzy = make_policy("frenzy");
  const double has_us = has_s(m) * 1e6, arrival_us = arrival_s(m, *frenzy) * 1e6;
  const double queue_us = queue_s(m, *frenzy) * 1e6;
  fmt::print("{:>8} {:>8} {:>6} {:>6} {:>8.2f} {:>11.2f} {:>9.0f}", gpus, m.idle.total_idle(),
             m.running.size(), queue, has_us, arrival_us, queue_us);
  const auto sia = sia_s(m, limit_s);
  const double sia_us = 1e6 * sia.value_or(limit_s);
  const char* const more = sia ? "" : ">";
  fmt::print(" {:>11} {:>11} {:>11} {:>10}\n", fmt::format("{}{:.1f}", more, sia_us / 1e3),
             fmt::format("{}{:.0f}", more, sia_us / has_us),
             fmt::format("{}{:.0f}", more, sia_us / arrival_us),
             fmt::format("{}{:.0f}", more, sia_us / queue_us));
  return row{has_us, arrival_us, sia_us / arrival_us, sia_us / queue_us};
}

void require(const char* what, double value, bool holds) {
  fmt::print("{:<66} {:>8.2f}  {}\n", what, value, holds ? "yes" : "NO");
}

void compare(const char* what, const expected<beside_frenzy>& x, double limit) {
  if (!x) return fmt::print("{}: {}\n", what, x.error().text);
  const double ratio = x->troupe_s / x->frenzy_s;
  require(
      fmt::format("{} ({:.3g} and {:.3g} s): at most {:g}", what, x->troupe_s, x->frenzy_s, limit)
          .c_str(),
      ratio, ratio <= limit);
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) {
  using namespace troupe::bench;
  std::setbuf(stdout, nullptr);
  if (argc > 1 && std::strcmp(argv[1], "titan") == 0)
    return time_titan_programs(argc - 2, argv + 2);
  const auto limit_s = argc > 1 ? static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10)) : 60u;
  fmt::print("{:>8} {:>8} {:>6} {:>6} {:>8} {:>11} {:>9} {:>11} {:>11} {:>11} {:>10}\n", "GPUs",
             "idle", "runs", "queue", "has us", "arrival us", "queue us", "Sia ms", "Sia/has",
             "Sia/arrival", "Sia/queue");
  double min_arrival = 1e300, min_queue = 1e300, has_growth = 0, arrival_growth = 0, max_us = 0;
  for (const std::uint32_t queue : {10u, 100u, 1'000u, 10'000u}) {
    std::optional<row> first;
    for (const std::uint32_t gpus : {1'000u, 10'000u, 100'000u}) {
      const auto r = measure(gpus, queue, limit_s);
      if (!r) continue;
      if (!first) first = r;
      min_arrival = std::min(min_arrival, r->arrival_ratio);
      min_queue = std::min(min_queue, r->queue_ratio);
      max_us = std::max(max_us, r->arrival_us);
      has_growth = std::max(has_growth, r->has_us / first->has_us);
      arrival_growth = std::max(arrival_growth, r->arrival_us / first->arrival_us);
    }
  }
  if (max_us == 0) return 0;
  fmt::print("\n");
  compare("planning a job on 100,000 GPUs: troupe's processor time over frenzy's", planning_s(),
          15);
  if (argc > 2)
    compare("all of Philly: troupe's processor time over frenzy's", replay_s(argv[2], 3), 8);
  require("Sia's round over frenzy's pass over the whole queue: at least 2", min_queue,
          min_queue >= 2);
  require("Sia's round over frenzy's decision at an arrival: at least 1,000", min_arrival,
          min_arrival >= 1000);
  require("has from 1,000 to 100,000 GPUs: growing less than twofold", has_growth, has_growth < 2);
  require("the decision at an arrival: growing less than twofold", arrival_growth,
          arrival_growth < 2);
  require("the decision at an arrival, us: about 10", max_us, max_us <= 15);
}
