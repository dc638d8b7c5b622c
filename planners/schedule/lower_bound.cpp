#include <algorithm>
#include <vector>

#include "planners/schedule/schedule.hpp"

namespace troupe::planners {

namespace {

/// The shortest paths through a pipeline, by stage.
struct paths {
  std::vector<double> forward;     // until a stage's first forward can begin
  std::vector<double> round_trip;  // from a forward's end until its gradient has arrived
  std::vector<double> backward;    // from a backward's end until the first stage has ended
};

paths paths_of(const pipeline_shape& s, const std::vector<double>& crossing) {
  paths w;
  w.forward.resize(s.stages);
  w.round_trip.resize(s.stages);
  w.backward.resize(s.stages);
  w.backward[0] = s.after(0);
  for (std::uint32_t i = 1; i < s.stages; ++i) {
    const auto before = s.at(i - 1);
    w.forward[i] = w.forward[i - 1] + before.forward + crossing[i - 1];
    w.backward[i] = w.backward[i - 1] + crossing[i - 1] + before.backward;
  }
  for (std::uint32_t i = s.stages - 1; i-- > 0;)
    w.round_trip[i] =
        2 * crossing[i] + s.at(i + 1).forward + w.round_trip[i + 1] + s.at(i + 1).backward;
  return w;
}

}  // namespace

// A length that no schedule of the shape can beat, under any of the rules of ATLAS (section 4.4).
// It tells how far from the optimum a schedule is, ends searches early, and stands for the length
// where simulating is too expensive. The work of the busiest stage alone would be too low for
// pipelines over a slow WAN, so every term is a chain of events that must happen one after the
// other, for some pipeline of some cell; the bound is the longest chain. A transfer takes at least
// its time over the whole bandwidth of a cell, and all transfers of a cell together at least as
// long as those of one pipeline over its own part. O(stages).
double pipeline_lower_bound(const pipeline_shape& s) {
  const auto& c = s.costs;
  const double m = s.microbatches, hop = c.wan / s.pipelines_per_cell();
  std::vector<double> crossing(s.stages);
  for (std::uint32_t i = 0; i + 1 < s.stages; ++i)
    crossing[i] = s.is_wan(i) ? hop + c.wan_latency : c.lan;
  const auto w = paths_of(s, crossing);
  double bound = 0;
  // After the first WAN hop some pipeline of a cell is served last, in each direction; at best
  // those that begin last are those that end first.
  double served_last = 0;
  for (std::uint32_t i = 0; i < s.stages; ++i) {
    const auto here = s.at(i);
    const double recompute = s.recomputes(i) ? here.recompute : 0;
    const double ends = w.forward[i] + served_last + w.backward[i];
    // A stage's work, after the path to it and before the path back or its own tail.
    const double work = m * (here.forward + recompute + here.backward);
    bound = std::max({bound, ends + work, w.forward[i] + work + s.after(i)});
    // Before the first gradient returns it can only do forwards, and one recompute (rule 4).
    bound = std::max(
        bound, ends + here.forward + w.round_trip[i] + m * here.backward + (m - 1) * recompute);
    if (const auto limit = s.flight_limit(i)) {  // a micro-batch is, from forward to backward
      const auto rounds = (s.microbatches + *limit - 1) / *limit;
      bound = std::max(bound, w.forward[i] + w.backward[i] +
                                  rounds * (here.forward + w.round_trip[i] + here.backward));
    }
    if (!s.is_wan(i)) continue;
    // The transfers of a hop in either direction, and the path after the last one.
    const auto next = s.at(i + 1);
    const double before = w.forward[i] + here.forward, after = here.backward + w.backward[i];
    bound = std::max(bound, before + m * c.wan + c.wan_latency + next.forward +
                                w.round_trip[i + 1] + next.backward + crossing[i] + after);
    bound = std::max(bound, before + crossing[i] + next.forward + w.round_trip[i + 1] +
                                next.backward + m * c.wan + c.wan_latency + after);
    served_last = c.wan - hop;
  }
  return bound;
}

}  // namespace troupe::planners
