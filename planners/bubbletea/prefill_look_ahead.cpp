// Rule look-ahead of prefill_packing: the order of a group's promised prompts follows the bubbles.
// Every other rule runs them in the order of their priorities and deadlines.

#include <algorithm>
#include <functional>
#include <utility>

#include "planners/bubbletea/bubble_filling.hpp"
#include "planners/bubbletea/prefill_packing.hpp"

namespace troupe::planners {

/// Puts these positions of the queue (ascending, all from `from` on) first, if no promise breaks.
bool prefill_packing::reorder(std::uint32_t group, std::size_t from,
                              const std::vector<std::size_t>& first, double now_s) {
  auto& queue = states_[group].queue;
  auto order = first;
  for (auto i = from; i < queue.size(); ++i)
    if (!std::ranges::binary_search(first, i)) order.push_back(i);
  if (std::ranges::is_sorted(order)) return true;
  const auto begin = before(states_[group], from, now_s);
  auto at = begin;
  for (const auto i : order)
    if (!in_time(carry_out(group, *queue[i].work, at), queue[i].by_s)) return false;
  std::vector<entry> moved;
  for (const auto i : order) moved.push_back(std::move(queue[i]));
  std::ranges::move(moved, queue.begin() + static_cast<std::ptrdiff_t>(from));
  plan_from(group, from, begin);
  return true;
}

/// Puts those first that fill the present bubble of the first guest best. Only the first guest
/// chooses, when it is about to begin a prompt: the others follow its order. A set whose order
/// would break a promise is given up for its longest member that breaks none.
void prefill_packing::look_ahead(std::uint32_t group, double now_s) {
  auto& g = states_[group];
  const auto& windows = first_windows(group);
  const auto from = begun(g);
  auto at = g.guests[0].free;
  if (!at.move_to(windows, now_s) || at.at_s > now_s + tiny) return;
  std::vector<double> times_s;
  const auto to = std::min<std::size_t>(g.queue.size(), from + options_.look_ahead);
  for (auto i = from; i < to; ++i) times_s.push_back(g.queue[i].work->guests[0][0].each_s);
  auto chosen = fill_bubble(windows[at.window].end - at.at_s, times_s);
  for (auto& i : chosen) i += from;
  if (reorder(group, from, chosen, now_s)) return;
  // The longest prompt alone whose preference breaks no promise.
  std::ranges::stable_sort(chosen, std::ranges::greater{},
                           [&](auto i) { return times_s[i - from]; });
  for (const auto i : chosen)
    if (reorder(group, from, {i}, now_s)) return;
}

}  // namespace troupe::planners
