#pragma once

#include <algorithm>
#include <cmath>

#include "harness/pipeline_shapes.hpp"
#include "messages/base/random.hpp"
#include "messages/domain/schedules.hpp"
#include "planners/schedule/evaluate_schedule.hpp"
#include "planners/schedule/named_schedule.hpp"

// Timetables of random trainings, and a check of single moments that knows nothing of windows.

namespace sample {

using namespace troupe::planners;
using troupe::random_source;

inline timetable random_timetable(random_source& r, std::uint32_t iterations) {
  const auto& names = troupe::schedule_names;
  for (;;) {
    pipeline_shape s;
    s.stages = 1 + static_cast<std::uint32_t>(r.below(4));
    s.pipelines = 1 + static_cast<std::uint32_t>(r.below(3));
    s.microbatches = 1 + static_cast<std::uint32_t>(r.below(5));
    s.stages_of_datacenter =
        troupe::test::split_evenly(s.stages, 1 + static_cast<std::uint32_t>(r.below(3)));
    s.costs = {1, 1, 2, 0, 0.5 * static_cast<double>(r.below(9)), 0};
    const auto made = schedule_pipeline(s, names[r.below(names.size() - 1)]);
    if (!made) continue;
    measured_times t;
    for (std::uint32_t i = 0; i < s.stages * s.pipelines; ++i)
      t.stages.push_back({0.5 + r.uniform(), r.uniform(), 1 + r.uniform(), 0.5 + r.uniform(),
                          r.chance(0.5) ? 0 : 2 * r.uniform(), 0.5 * r.uniform()});
    t.wan.assign(s.stages, s.costs.wan);
    t.lan.assign(s.stages, 0);
    return *simulated_timetable(*made, t, iterations);
  }
}

/// Does the device of a stage compute, copy or update at that time, when the timetable repeats?
inline bool is_busy(const timetable& t, std::size_t stage, double at) {
  const double x = at - std::floor(at / t.length) * t.length;
  const auto within = [&](double begin, double end) { return x >= begin && x < end; };
  for (const auto& s : t.steps[stage])
    if (within(s.begin, s.end)) return true;
  for (const auto& e : t.tails[stage])
    if (within(e.begin, e.exchange) || within(e.update, e.end) ||
        (e.on_devices && within(e.exchange, e.update)))
      return true;
  return false;
}

/// When its next step or tail begins after `at`, at the latest in the next two lengths.
inline double next_begin(const timetable& t, std::size_t stage, double at) {
  double next = 1e300;
  const double block = std::floor(at / t.length) * t.length;
  for (const double b : {block, block + t.length, block + 2 * t.length}) {
    const auto consider = [&](double begin, double end) {
      if (end > begin && b + begin > at) next = std::min(next, b + begin);
    };
    for (const auto& s : t.steps[stage]) consider(s.begin, s.end);
    for (const auto& e : t.tails[stage]) consider(e.begin, e.exchange), consider(e.update, e.end);
  }
  return next;
}

inline bool is_free(const timetable& t, std::size_t stage, double at, double from, double to,
                    double guard) {
  return at >= from && at < to && !is_busy(t, stage, at) && at < next_begin(t, stage, at) - guard;
}

}  // namespace sample
