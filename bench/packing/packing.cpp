// bench_packing: what a promise costs beside trainings on 12 and on 3,000 devices, and how fast a
// trace is replayed. Targets: an admission at most 20 us on 12 devices, and 200 us (99th
// percentile) on 3,000 devices with 1,000 promised prompts; 5,000 replayed prompts a second.
#include <algorithm>
#include <ctime>
#include <vector>

#include <fmt/format.h>

#include "bubbletea/prefill_replay.hpp"
#include "formats/load/load.hpp"
#include "formats/traces/trace.hpp"
#include "harness/clock.hpp"
#include "messages/base/random.hpp"
#include "planners/schedule/named_schedule.hpp"

namespace troupe::bench {
namespace {

using namespace planners;

constexpr double horizon_s = 300;
constexpr double forward_s = 0.02;

/// ATLAS's pipelines, with a forward of 20 ms and C = 3.
timetable training(std::uint32_t stages, std::uint32_t pipelines, std::uint32_t microbatches) {
  pipeline_shape shape{stages, pipelines, microbatches, {stages / 3, stages / 3, stages / 3}, 3,
                       {},     {}};
  shape.costs = {forward_s, forward_s, 2 * forward_s, 0, 3 * forward_s, 0};
  const auto made = schedule_pipeline(shape, "atlas-least-progress");
  measured_times t;
  t.stages.assign(std::size_t{stages} * pipelines,
                  {forward_s, forward_s, 2 * forward_s, forward_s});
  t.wan.assign(stages, shape.costs.wan);
  t.lan.assign(stages, 0);
  return *simulated_timetable(*made, t, 2);
}

struct load {
  std::vector<prefill_group> groups;
  std::vector<idle_windows> windows;

  load(std::uint32_t stages, std::uint32_t pipelines, std::uint32_t microbatches) {
    windows = bubbles(training(stages, pipelines, microbatches), 0, horizon_s, 0.5e-3);
    const auto configs = formats::configs_directory();
    const auto m = formats::load_model(configs / "models/llama3.2-1b.json");
    const auto c = formats::load_cluster(configs / "clusters/atlas-testbed.yaml");
    const auto layer = served_layer_of(*m);
    for (std::uint32_t d = 0; d < windows.size(); ++d)
      groups.push_back({{{d, 0, layer->layers, prefill_rate_of(*layer, c->gpu_of(0))}}, 0, 0});
  }
};

prefill_prompt request(std::uint64_t id, double arrival_s,
                       const std::vector<formats::inference_row>& trace) {
  return {id, arrival_s, std::max(1u, trace[id % trace.size()].prompt_tokens), arrival_s + 2, 0};
}

/// Admissions with about `promised` prompts that have not ended, microseconds each, ascending.
std::vector<double> admissions_us(const load& on, std::size_t promised,
                                  const std::vector<formats::inference_row>& trace,
                                  std::uint64_t& declined) {
  constexpr int states = 20, timed = 100;
  std::vector<double> us;
  random_source random{1};
  for (int state = 0; state < states; ++state) {
    prefill_packing packing{{}, on.groups, on.windows};
    double now_s = random.uniform() * horizon_s / 2;
    std::uint64_t id = random.below(trace.size());
    while (packing.promised() < promised) (void)packing.admit(request(id++, now_s, trace), now_s);
    for (int i = 0; i < timed; ++i) {
      now_s += 1e-3;
      const auto r = request(id++, now_s, trace);
      const double begin = clock_s(CLOCK_THREAD_CPUTIME_ID);
      const auto answer = packing.admit(r, now_s);
      us.push_back(1e6 * (clock_s(CLOCK_THREAD_CPUTIME_ID) - begin));
      declined += !answer;
    }
  }
  std::ranges::sort(us);
  return us;
}

void print_admissions(const char* name, const load& on, std::size_t promised,
                      const std::vector<formats::inference_row>& trace) {
  std::uint64_t declined = 0;
  const auto us = admissions_us(on, promised, trace, declined);
  const auto at = [&](double share) { return us[static_cast<std::size_t>(share * us.size())]; };
  fmt::print("{:24}{:10}{:10.1f}{:10.1f}{:10.1f}{:10}\n", name, promised, at(0.5), at(0.99),
             us.back(), declined);
}

/// Prompts a second of processor time.
void print_replay(const load& on, const std::vector<formats::inference_row>& trace) {
  std::vector<prefill_prompt> requests;
  for (std::uint64_t i = 0; i < 50'000; ++i)
    requests.push_back(request(i, static_cast<double>(i) * horizon_s / 1.1 / 50'000, trace));
  const double begin = clock_s(CLOCK_THREAD_CPUTIME_ID);
  const auto done =
      bubbletea::replay_prefills({{}, on.groups, on.windows}, on.windows.size(), requests);
  const double s = clock_s(CLOCK_THREAD_CPUTIME_ID) - begin;
  fmt::print("\nreplay, 12 devices: {:.0f} prompts/s of processor time; {} served, {} declined\n",
             static_cast<double>(requests.size()) / s, done.served.size(), done.all_declined());
}

}  // namespace
}  // namespace troupe::bench

int main() {
  using namespace troupe;
  using namespace troupe::bench;
  const auto trace =
      formats::load_inference_trace(formats::configs_directory() / "traces/azure-code-10min.csv");
  if (!trace) {
    fmt::print(stderr, "{}\n", trace.error().text);
    return 1;
  }
  fmt::print("{:24}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "admission, us", "promised", "median", "p99",
             "worst", "declined");
  const load small{6, 2, 5};
  print_admissions("12 devices", small, 12, *trace);
  print_admissions("12 devices", small, 64, *trace);
  const load large{60, 50, 60};
  print_admissions("3,000 devices", large, 100, *trace);
  print_admissions("3,000 devices", large, 1000, *trace);
  print_replay(small, *trace);
}
