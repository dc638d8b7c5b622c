#include "studies/prefill_bubbles.hpp"

#include <algorithm>
#include <vector>

#include "messages/wire/task_kind.hpp"
#include "planners/bubbletea/packing_bound.hpp"
#include "planners/bubbletea/prefill_groups.hpp"
#include "planners/bubbletea/step_clock.hpp"

namespace troupe::cli {

namespace {

using planners::idle_windows;

constexpr double rounding_s = 1e-8;  // of times in reports

/// A device's time in the iterations that count.
struct device_use {
  double from_s = 0, to_s = 0;
  idle_windows training, prefills;  // in order and disjoint
};

void append(idle_windows& all, double begin_s, double end_s) {
  if (!all.empty() && begin_s <= all.back().end + rounding_s)
    all.back().end = std::max(all.back().end, end_s);
  else
    all.push_back({begin_s, end_s});
}

/// A copy of gradients is what a stage does between its last step and the exchange of the sums.
device_use use_of(std::vector<timed_task> tasks) {
  const auto updates_of = [](const timed_task& t) { return t.what == index_of(task_kind::update); };
  const auto counted =
      studies::counted_of(static_cast<std::uint64_t>(std::ranges::count_if(tasks, updates_of)));
  std::ranges::stable_sort(tasks, {}, &timed_task::begin_s);
  device_use use;
  std::uint64_t updates = 0;
  double step_end_s = 0;
  for (const auto& t : tasks) {
    const auto what = static_cast<task_kind>(t.what);
    if (what == task_kind::prefill) {
      append(use.prefills, t.begin_s, t.end_s);
    } else if (what == task_kind::reduce) {
      append(use.training, step_end_s, t.begin_s);
    } else if (what <= task_kind::checkpoint) {
      append(use.training, t.begin_s, t.end_s);
      step_end_s = t.end_s;
    }
    if (what != task_kind::update) continue;
    if (++updates <= counted.first) use.from_s = t.end_s;
    if (updates <= counted.end) use.to_s = t.end_s;
  }
  return use;
}

/// What is left of a device's time without these.
idle_windows left_by(const idle_windows& used, double from_s, double to_s) {
  auto all = planners::without({{from_s, to_s}}, used);
  std::erase_if(all, [](const auto& w) { return w.length_s() <= rounding_s; });
  return all;
}

double bound_s(idle_windows idle, const std::vector<double>& offered_s, const bubble_lending& how) {
  constexpr double ms = 1e-3;
  const auto packing = planners::packing_of(how);
  for (auto& w : idle) w.end -= planners::delay_budget::smallest_guard * how.guard_ms * ms;
  std::erase_if(idle, [](const auto& w) { return w.length_s() <= 0; });
  return packing ? planners::packing_bound_s(packing->rule, idle, offered_s) : 0;
}

}  // namespace

bubble_shares bubble_shares_of(const studies::simulated_prefills& done, const bubble_lending& how) {
  bubble_shares r;
  double all_s = 0;
  const auto packing = planners::packing_of(how);
  for (const auto& [gateway, offer] : done.offers)
    for (const auto& g : offer.groups) {
      const auto group = planners::planned_group(g, 0);
      for (std::size_t i = 0; packing && i < g.guests.size(); ++i) {
        const auto at = done.devices.find(g.guests[i].stage);
        if (at == done.devices.end()) continue;
        const auto use = use_of(at->second.tasks);
        if (use.to_s <= use.from_s) continue;
        std::vector<double> offered_s;
        for (const auto& q : done.requests)
          offered_s.push_back(planners::prefill_s(group.guests[i].rate, group.guests[i].layers,
                                                  q.prompt_tokens, 0));
        const auto idle = left_by(use.training, use.from_s, use.to_s);
        const auto left = planners::without(idle, use.prefills);
        all_s += use.to_s - use.from_s;
        r.upper_bound += bound_s(idle, offered_s, how);
        for (const auto& w : left) {
          if (w.length_s() <= rounding_s) continue;
          r.residual += w.length_s();
          ++r.residual_bubbles;
        }
        r.prefill += planners::total_s(idle) - planners::total_s(left);
      }
    }
  if (!(all_s > 0)) return r;
  if (r.residual_bubbles > 0) r.residual_s = r.residual / static_cast<double>(r.residual_bubbles);
  r.prefill /= all_s, r.upper_bound /= all_s, r.residual /= all_s;
  return r;
}

}  // namespace troupe::cli
