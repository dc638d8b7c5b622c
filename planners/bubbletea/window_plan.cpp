#include "planners/bubbletea/window_plan.hpp"

#include "messages/base/invariant.hpp"

namespace troupe::planners {

namespace {

/// Is a timetable from barrier to barrier short enough to be kept? Beyond 200 iterations the first
/// ones, which differ, hardly count: one iteration in the steady state then stands for all.
bool repeats_windows(const bubble_offer& o) {
  constexpr std::uint64_t max_iterations = 200;
  return o.window > 0 && o.window <= max_iterations;
}

}  // namespace

// The offer shows few iterations; window_plan::at derives the others. Without a whole window the
// last shown iteration but one is used: the last one may end at a barrier.
idle_windows repeated_busy_times(const bubble_offer& o, const stage_busy_times& s) {
  const window_plan plan{s.busy, s.busy.size() / o.shown, o.iteration_s, o.window, 0};
  const bool windows = repeats_windows(o);
  const std::uint64_t from = windows || o.shown < 2 ? 0 : o.shown - 2;
  const std::uint64_t to = windows ? o.window : from + 1;
  idle_windows all;
  for (auto i = from; i < to; ++i)
    for (std::size_t k = 0; k < plan.operations; ++k) {
      const auto b = plan.at(i, k);
      all.push_back({b.begin_s, b.end_s});
    }
  TROUPE_INVARIANT(!all.empty(), "an offer shows when each of its stages is busy");
  const double zero_s = windows ? 0 : all.front().begin;
  for (auto& b : all) b.begin -= zero_s, b.end -= zero_s;
  return all;
}

double repeated_after_s(const bubble_offer& o) {
  return repeats_windows(o) ? o.window_s : o.iteration_s;
}

double first_step_s(const bubble_offer& o, const idle_windows& busy, std::uint64_t iteration) {
  if (!repeats_windows(o) || iteration < o.first_iteration) return busy.front().begin;
  const auto n = (iteration - o.first_iteration) % o.window;
  TROUPE_INVARIANT(busy.size() >= o.window,
                   "a timetable that repeats a window has each of its iterations");
  return busy[n * (busy.size() / o.window)].begin;
}

}  // namespace troupe::planners
