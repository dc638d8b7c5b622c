#pragma once

#include <algorithm>
#include <vector>

#include "planners/bubbletea/prefill_packing.hpp"
#include "random_timetable.hpp"

// Random trainings, prefill pipelines beside them, and requests.

namespace sample {

struct packing_case {
  timetable times;
  double guard_s = 0, until_s = 0;
  std::vector<idle_windows> windows;
  std::vector<prefill_group> groups;
  packing_options options;
  std::vector<prefill_prompt> requests;

  prefill_packing packing() const { return {options, groups, windows}; }
};

/// A prompt of 1,000 tokens takes about as long as a few steps.
inline prefill_rate random_rate(random_source& r) {
  return {(0.2 + r.uniform()) * 1e-3, r.uniform() * 1e-7, r.chance(0.5) ? 0.0 : 64.0};
}

inline std::vector<prefill_group> random_groups(random_source& r, std::uint32_t devices) {
  std::vector<prefill_group> groups;
  const auto shared = random_rate(r);
  for (std::uint32_t d = 0; d < devices;) {
    prefill_group g;
    const auto depth = std::min(devices - d, 1 + static_cast<std::uint32_t>(r.below(3)));
    std::uint32_t first = 0;
    for (std::uint32_t i = 0; i < depth; ++i) {
      const auto layers = 1 + static_cast<std::uint32_t>(r.below(4));
      g.guests.push_back({d++, first, layers, r.chance(0.7) ? shared : random_rate(r)});
      first += layers;
    }
    if (depth > 1) g.hop_token_s = 1e-5, g.hop_latency_s = r.chance(0.5) ? 0 : 0.01;
    groups.push_back(g);
    if (r.chance(0.1)) ++d;  // a device without a guest
  }
  return groups;
}

inline packing_case random_packing(random_source& r) {
  packing_case x;
  x.times = random_timetable(r, 1 + static_cast<std::uint32_t>(r.below(2)));
  x.guard_s = r.chance(0.5) ? 0 : 0.2 * r.uniform();
  x.until_s = (5 + 20 * r.uniform()) * x.times.length;
  x.windows = bubbles(x.times, 0, x.until_s, x.guard_s);
  x.groups = random_groups(r, static_cast<std::uint32_t>(x.windows.size()));
  x.options.rule = static_cast<packing_rule>(r.below(4));
  x.options.look_ahead = 1 + static_cast<std::uint32_t>(r.below(6));
  x.options.chunk = 64 << r.below(4);
  x.options.op_s = 0.05 + 0.5 * r.uniform();
  if (r.chance(0.3)) x.options.max_promised = 1 + static_cast<std::uint32_t>(r.below(4));
  const bool deadlines = r.chance(0.6), urgent = r.chance(0.3), steady = r.chance(0.5);
  double at = 0;
  const auto count = 1 + r.below(14);
  for (std::uint64_t i = 0; i < count; ++i) {
    prefill_prompt q;
    q.id = i;
    q.arrival_s = r.chance(0.3) ? at : at += r.uniform() * x.until_s / 20;
    q.tokens = 1 + static_cast<std::uint32_t>(r.below(r.chance(0.2) ? 6000 : 1500));
    if (deadlines) q.latest_s = q.arrival_s + (steady ? 2 : 0.3 + 3 * r.uniform()) * x.times.length;
    if (urgent) q.priority = static_cast<std::int32_t>(r.below(3));
    x.requests.push_back(q);
  }
  return x;
}

/// May a later request go before an earlier one?
inline bool may_overtake(const packing_case& x) {
  if (x.options.rule == packing_rule::look_ahead) return true;
  if (x.options.rule == packing_rule::whole) return false;
  for (std::size_t i = 1; i < x.requests.size(); ++i)
    if (x.requests[i].priority > x.requests[0].priority ||
        x.requests[i].latest_s < x.requests[i - 1].latest_s ||
        x.requests[i].priority != x.requests[i - 1].priority)
      return true;
  return false;
}

}  // namespace sample
