#include "planners/bubbletea/prefill_forecast.hpp"

#include <algorithm>
#include <utility>

#include "messages/base/invariant.hpp"

namespace troupe::planners {

prefill_forecast::prefill_forecast(packing_options options, std::vector<prefill_group> groups,
                                   std::size_t devices, std::uint32_t max_tokens)
    : packing_{options, std::move(groups), std::vector<idle_windows>(devices), max_tokens},
      devices_(devices) {}

void prefill_forecast::set_windows(std::uint32_t device, idle_windows windows, double now_s) {
  advance(now_s);
  packing_.set_windows(device, std::move(windows), now_s);
  look(device, now_s);
}

tl::expected<prefill_promise, decline_reason> prefill_forecast::admit(const prefill_prompt& r,
                                                                      double now_s) {
  advance(now_s);
  auto promised = packing_.admit(r, now_s);
  if (!promised) return promised;
  TROUPE_INVARIANT(promised->group < packing_.groups().size(), "a promise is of one of the groups");
  group_of_[r.id] = promised->group;
  look(packing_.groups()[promised->group].guests.front().device, now_s);
  return promised;
}

// The real prefill may be ahead of the plan or behind it; where the plan still runs a piece of the
// prompt, the device is free at once.
void prefill_forecast::over(std::uint64_t id, double now_s) {
  advance(now_s);
  const auto at = group_of_.find(id);
  if (at == group_of_.end()) return;
  const auto group = at->second;
  group_of_.erase(at);
  std::erase(begun_, id);
  packing_.remove(group, id, now_s);
  for (const auto& g : packing_.groups()[group].guests) {
    auto& d = devices_[g.device];
    if (d.piece && d.piece->request == id) d = {};
  }
  look_at_group(group, now_s);
}

void prefill_forecast::set_factor(std::uint32_t device, double factor, double now_s) {
  advance(now_s);
  packing_.set_factor(device, factor, now_s);
  look(device, now_s);
}

void prefill_forecast::late(std::uint32_t group, double by_s, double now_s) {
  advance(now_s);
  packing_.delay(group, now_s + by_s, now_s);
  look_at_group(group, now_s);
}

std::vector<prefill_forecast::begun_prompt> prefill_forecast::take_begun(double now_s) {
  advance(now_s);
  std::vector<begun_prompt> all;
  for (const auto id : std::exchange(begun_, {})) {
    // A prompt that is shorter than the time between two calls has ended by now as well.
    const auto at = group_of_.find(id);
    const double end_s = at == group_of_.end() ? now_s : packing_.planned_end_s(at->second, id);
    all.push_back({id, end_s});
  }
  return all;
}

double prefill_forecast::next_event_s() const {
  return due_.empty() ? never : due_.front().at_s;
}

void prefill_forecast::expect(std::uint32_t device, double at_s) {
  due_.push_back({at_s, ++sequence_, device});
  std::push_heap(due_.begin(), due_.end());
  devices_[device].expected = sequence_;
}

void prefill_forecast::look_at_group(std::uint32_t group, double now_s) {
  for (const auto& g : packing_.groups()[group].guests) look(g.device, now_s);
}

/// Lets an idle device begin its next piece, or wakes it when one may begin. A device has at most
/// one valid event: a later look() supersedes it by its sequence number, because removing an event
/// from the middle of a heap would cost a search.
void prefill_forecast::look(std::uint32_t device, double now_s) {
  auto& d = devices_[device];
  if (d.piece) return;
  d.expected = 0;
  const auto next = packing_.next(device, now_s);
  if (!next.piece) {
    if (next.again_s < never) expect(device, next.again_s);
    return;
  }
  d.piece = next.piece;
  expect(device, next.piece->end_s);
  const bool first = next.piece->guest == 0 && next.piece->tile == 0;
  if (first && std::ranges::find(begun_, next.piece->request) == begun_.end())
    begun_.push_back(next.piece->request);
}

/// Carries out the plan up to now: pieces end when they were predicted to, each end lets its device
/// and the next guest of the group go on. Events of one instant go by the order in which they were
/// expected, so that the same calls give the same promises everywhere.
void prefill_forecast::advance(double now_s) {
  while (!due_.empty() && due_.front().at_s <= now_s) {
    std::pop_heap(due_.begin(), due_.end());
    const auto e = due_.back();
    due_.pop_back();
    TROUPE_INVARIANT(e.device < devices_.size(), "an event is of one of the devices");
    auto& d = devices_[e.device];
    if (e.sequence != d.expected) continue;
    d.expected = 0;
    const auto piece = std::exchange(d.piece, std::nullopt);
    if (piece && packing_.ended(*piece)) group_of_.erase(piece->request);
    look(e.device, e.at_s);
    if (const auto after = piece ? packing_.device_after(*piece) : std::nullopt)
      look(*after, e.at_s);
  }
}

}  // namespace troupe::planners
