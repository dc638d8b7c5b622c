#include <algorithm>
#include <vector>

#include "planners/pipeline/schedule.hpp"

namespace troupe::planners {

namespace {

/// The shortest ways through a pipeline, by stage.
struct ways {
  std::vector<double> there;   // until a first forward can begin
  std::vector<double> beyond;  // from a forward's end until its gradient is here
  std::vector<double> back;    // from a backward's end until the first stage is through
};

ways ways_of(const pipeline_shape& s, const std::vector<double>& crossing) {
  ways w;
  w.there.resize(s.stages);
  w.beyond.resize(s.stages);
  w.back.resize(s.stages);
  w.back[0] = s.after(0);
  for (std::uint32_t i = 1; i < s.stages; ++i) {
    const auto before = s.at(i - 1);
    w.there[i] = w.there[i - 1] + before.forward + crossing[i - 1];
    w.back[i] = w.back[i - 1] + crossing[i - 1] + before.backward;
  }
  for (std::uint32_t i = s.stages - 1; i-- > 0;)
    w.beyond[i] = 2 * crossing[i] + s.at(i + 1).forward + w.beyond[i + 1] + s.at(i + 1).backward;
  return w;
}

}  // namespace

// Every term is a chain of things that must happen one after the other, for some pipeline of some
// cell. A transfer takes at least all shares of a cell at once, and a cell's transfers together as
// long as one pipeline's own share would take for its own.
double pipeline_lower_bound(const pipeline_shape& s) {
  const auto& c = s.costs;
  const double m = s.microbatches, hop = c.wan / s.pipelines_per_cell();
  std::vector<double> crossing(s.stages);
  for (std::uint32_t i = 0; i + 1 < s.stages; ++i)
    crossing[i] = s.is_wan(i) ? hop + c.wan_latency : c.lan;
  const auto w = ways_of(s, crossing);
  double bound = 0;
  // Beyond the first WAN hop some pipeline of a cell is served last, and in each of its directions
  // some pipeline is; at best those that begin last are those that end first.
  double served_last = 0;
  for (std::uint32_t i = 0; i < s.stages; ++i) {
    const auto here = s.at(i);
    const double recompute = s.recomputes(i) ? here.recompute : 0;
    const double ends = w.there[i] + served_last + w.back[i];
    // A stage's work, after the way to it and before the way back, or what it does then.
    const double work = m * (here.forward + recompute + here.backward);
    bound = std::max({bound, ends + work, w.there[i] + work + s.after(i)});
    // Before the first gradient is back it can only forward, and recompute for that one (rule 4).
    bound = std::max(bound,
                     ends + here.forward + w.beyond[i] + m * here.backward + (m - 1) * recompute);
    if (s.max_in_flight) {  // a micro-batch is held from its forward to its backward
      const auto rounds = (s.microbatches + *s.max_in_flight - 1) / *s.max_in_flight;
      bound = std::max(
          bound, w.there[i] + w.back[i] + rounds * (here.forward + w.beyond[i] + here.backward));
    }
    if (!s.is_wan(i)) continue;
    // What crosses a hop, one way or the other, and the way of what crosses it last.
    const auto next = s.at(i + 1);
    const double there = w.there[i] + here.forward, back = here.backward + w.back[i];
    bound = std::max(bound, there + m * c.wan + c.wan_latency + next.forward + w.beyond[i + 1] +
                                next.backward + crossing[i] + back);
    bound = std::max(bound, there + crossing[i] + next.forward + w.beyond[i + 1] + next.backward +
                                m * c.wan + c.wan_latency + back);
    served_last = c.wan - hop;
  }
  return bound;
}

}  // namespace troupe::planners
