#include "studies/prefill_bubbles.hpp"

#include <algorithm>
#include <vector>

#include "messages/wire/task_kind.hpp"
#include "planners/bubbletea/packing_bound.hpp"
#include "planners/bubbletea/prefill_groups.hpp"
#include "planners/bubbletea/step_clock.hpp"
#include "studies/prefill_simulation.hpp"

namespace troupe::studies {

namespace {

using planners::idle_windows;

/// Reports round times: shorter windows are none.
constexpr double rounding_s = 1e-8;

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

/// From an iteration's last step to the exchange of gradients the stage copies them: that time is
/// the training's. During the exchange the device is idle.
device_use use_of(std::vector<timed_task> tasks) {
  const auto updates_in_all =
      std::ranges::count(tasks, index_of(task_kind::update), &timed_task::what);
  const auto counted = counted_of(static_cast<std::uint64_t>(updates_in_all));
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

/// No packing may use the guard before a step, of which the delay budget leaves a part at least.
double bound_s(planners::packing_rule rule, idle_windows idle, const std::vector<double>& offered_s,
               const bubble_lending& how) {
  for (auto& w : idle) w.end -= planners::delay_budget::smallest_guard * how.guard_ms * 1e-3;
  std::erase_if(idle, [](const auto& w) { return w.length_s() <= 0; });
  return planners::packing_bound_s(rule, idle, offered_s);
}

}  // namespace

// Prefill time counts only inside of idle windows: a prefill that delays a step is the training's
// loss, not use of a bubble.
void bubble_tally::add(double span_s, const idle_windows& idle, const idle_windows& used,
                       double bound_s) {
  all_s_ += span_s;
  bound_s_ += bound_s;
  const auto left = planners::without(idle, used);
  prefill_s_ += planners::total_s(idle) - planners::total_s(left);
  for (const auto& w : left) {
    if (w.length_s() <= rounding_s_) continue;
    residual_s_ += w.length_s();
    ++residual_bubbles_;
  }
}

bubble_shares bubble_tally::shares() const {
  if (!(all_s_ > 0)) return {};
  return {prefill_s_ / all_s_, bound_s_ / all_s_, residual_s_ / all_s_, residual_bubbles_,
          residual_bubbles_ > 0 ? residual_s_ / static_cast<double>(residual_bubbles_) : 0};
}

// A guest is offered its layers' part of every prompt, so that the bound holds for each device
// alone.
bubble_shares bubble_shares_of(const simulated_prefills& done, const bubble_lending& how) {
  bubble_tally tally{rounding_s};
  const auto packing = planners::packing_of(how);
  if (!packing) return {};
  for (const auto& [gateway, offer] : done.offers)
    for (const auto& g : offer.groups) {
      const auto group = planners::planned_group(g, 0);
      for (std::size_t i = 0; i < g.guests.size(); ++i) {
        const auto at = done.devices.find(g.guests[i].stage);
        if (at == done.devices.end()) continue;
        const auto use = use_of(at->second.tasks);
        if (use.to_s <= use.from_s) continue;
        std::vector<double> offered_s;
        for (const auto& q : done.requests)
          offered_s.push_back(planners::prefill_s(group.guests[i].rate, group.guests[i].layers,
                                                  q.prompt_tokens, 0));
        auto idle = planners::without({{use.from_s, use.to_s}}, use.training);
        std::erase_if(idle, [](const auto& w) { return w.length_s() <= rounding_s; });
        tally.add(use.to_s - use.from_s, idle, use.prefills,
                  bound_s(packing->rule, idle, offered_s, how));
      }
    }
  return tally.shares();
}

}  // namespace troupe::studies
