#include "planners/bubbletea/prefill_packing.hpp"

#include <algorithm>
#include <array>
#include <tuple>

#include "messages/base/invariant.hpp"

namespace troupe::planners {

namespace {

// A guest that measures its operations fits them into bubbles as they come. They are shorter than
// the plan's (a sublayer on 64 rows), and bubbles longer or shorter than planned: what counts is
// the time together.
constexpr std::uint32_t measured_per_layer = 16;

/// Do two groups' guests take equally long for every prompt?
bool same_kind(const prefill_group& a, const prefill_group& b) {
  return a.hop_token_s == b.hop_token_s && a.hop_latency_s == b.hop_latency_s &&
         std::ranges::equal(a.guests, b.guests, [](const auto& x, const auto& y) {
           return x.layers == y.layers && x.rate == y.rate;
         });
}

double longest_s(const idle_windows& windows) {
  double longest = 0;
  for (const auto& w : windows) longest = std::max(longest, w.length_s());
  return longest;
}

}  // namespace

std::string_view to_string(decline_reason why) {
  constexpr std::array names{"no_bubble_before_deadline",
                             "no_guest_for_model",
                             "timetable_unknown",
                             "guest_memory",
                             "queue_full",
                             "too_long"};
  return names[static_cast<std::size_t>(why)];
}

prefill_packing::prefill_packing(packing_options options, std::vector<prefill_group> groups,
                                 std::vector<idle_windows> windows, std::uint32_t cache_tokens)
    : options_{options},
      groups_{std::move(groups)},
      devices_(windows.size()),
      cache_tokens_{cache_tokens},
      states_(groups_.size()) {
  for (std::size_t d = 0; d < windows.size(); ++d) {
    if (!windows[d].empty()) horizon_s_ = std::max(horizon_s_, windows[d].back().end);
    devices_[d].windows = std::move(windows[d]);
  }
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    auto& s = states_[g];
    const auto& guests = groups_[g].guests;
    s.guests.resize(guests.size());
    for (std::uint32_t i = 0; i < guests.size(); ++i) {
      auto& d = devices_[guests[i].device];
      TROUPE_INVARIANT(d.group == none, "a device is a guest of one group");
      d.group = g;
      d.guest = i;
    }
    by_free_.insert({s.key, g});
  }
  find_kinds();
}

// Groups of one kind (equal guests and hops) need equal work for a prompt: it is computed once for
// each kind, not for each of thousands of groups. A kind's room is the longest bubble that any of
// its devices has ever had, by which an operation that fits nowhere is declined without a search.
void prefill_packing::find_kinds() {
  kinds_.clear();
  prepared_tokens_ = 0;
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    const auto& guests = groups_[g].guests;
    const auto same = std::ranges::find_if(
        kinds_, [&](const auto& k) { return same_kind(groups_[k.example], groups_[g]); });
    states_[g].kind = static_cast<std::uint32_t>(same - kinds_.begin());
    if (same == kinds_.end())
      kinds_.push_back({g, std::vector<double>(guests.size(), 0.0), nullptr});
    for (std::uint32_t i = 0; i < guests.size(); ++i) {
      auto& room_s = kinds_[states_[g].kind].room_s[i];
      room_s = std::max(room_s, longest_s(devices_[guests[i].device].windows));
    }
  }
}

// ---- what a request needs

void prefill_packing::prepare(std::uint32_t tokens) {
  if (tokens == prepared_tokens_) return;
  for (auto& k : kinds_)
    k.work = std::make_shared<const prefill_work>(work_of(groups_[k.example], tokens, options_));
  prepared_tokens_ = tokens;
}

std::optional<decline_reason> prefill_packing::impossible(const prefill_prompt& r,
                                                          double now_s) const {
  if (groups_.empty()) return decline_reason::no_guest_for_model;
  if (now_s >= horizon_s_) return decline_reason::timetable_unknown;
  if (options_.max_tokens > 0 && r.tokens > options_.max_tokens) return decline_reason::too_long;
  if (cache_tokens_ > 0 && r.tokens > cache_tokens_) return decline_reason::guest_memory;
  const auto no_room = [](const group_kind& k) {
    for (std::size_t i = 0; i < k.room_s.size(); ++i)
      if (k.work->longest_s[i] > k.room_s[i]) return true;
    return false;
  };
  if (std::ranges::all_of(kinds_, no_room)) return decline_reason::too_long;
  return {};
}

bool prefill_packing::goes_before(const prefill_prompt& a, const prefill_prompt& b) {
  return std::tuple{-std::int64_t{a.priority}, a.latest_s, a.arrival_s, a.id} <
         std::tuple{-std::int64_t{b.priority}, b.latest_s, b.arrival_s, b.id};
}

// ---- the plan of a group

// The queue's first position that may still change: behind the prompts that the first guest has
// ended, and behind the one that it has begun.
std::size_t prefill_packing::begun(const group_state& g) {
  TROUPE_INVARIANT(g.guests[0].current >= g.first,
                   "a group's first guest is at one of its prompts, or behind them");
  const auto at = g.guests[0].current - g.first;
  TROUPE_INVARIANT(at <= g.queue.size(), "a guest is at a prompt that was promised");
  return at + (at < g.queue.size() && g.queue[at].begun ? 1 : 0);
}

std::size_t prefill_packing::position_of(const group_state& g, const prefill_prompt& r) const {
  const auto first = begun(g);
  auto position = g.queue.size();
  if (options_.in_order || options_.rule == packing_rule::whole) return position;
  while (position > first && goes_before(r, g.queue[position - 1].request)) --position;
  return position;
}

prefill_packing::cursors prefill_packing::free_of(const group_state& g) {
  cursors all;
  for (const auto& guest : g.guests) all.push_back(guest.free);
  return all;
}

prefill_packing::cursors prefill_packing::before(const group_state& g, std::size_t position,
                                                 double now_s) {
  auto at = position > 0 ? g.queue[position - 1].after : free_of(g);
  for (auto& c : at) c.at_s = std::max(c.at_s, now_s);
  return at;
}

/// When a request that is promised now can begin: under rule whole not before the one that was
/// promised before it, as only the head of the controller's queue is looked at; in_order each group
/// has a queue of its own.
double prefill_packing::earliest_s(double now_s) const {
  const bool one_queue = options_.rule == packing_rule::whole && !options_.in_order;
  return one_queue ? std::max(now_s, last_begin_s_) : now_s;
}

// A pipeline of the group's guests: guest i begins a tile when guest i - 1 has handed it on and its
// own previous tile has ended. Walking tile by tile over all guests visits each pair once, in an
// order in which both are known.
double prefill_packing::carry_out(std::uint32_t group, const prefill_work& w, cursors& at) const {
  const auto& guests = groups_[group].guests;
  TROUPE_INVARIANT(at.size() == guests.size(),
                   "each guest of a group is at some place of its windows");
  for (std::size_t tile = 0; tile < w.hop_s.size(); ++tile) {
    double ready_s = 0;
    for (std::size_t i = 0; i < guests.size(); ++i) {
      if (!at[i].carry_out(devices_[guests[i].device].windows, w.guests[i][tile], ready_s))
        return never;
      ready_s = at[i].at_s + w.hop_s[tile];
    }
  }
  return at.back().at_s;
}

/// Do all requests from `from` on end in time, from `at` on?
bool prefill_packing::keeps(std::uint32_t group, std::size_t from, cursors at) const {
  const auto& queue = states_[group].queue;
  for (auto i = from; i < queue.size(); ++i)
    if (!in_time(carry_out(group, *queue[i].work, at), queue[i].by_s)) return false;
  return true;
}

void prefill_packing::plan_from(std::uint32_t group, std::size_t position, cursors at) {
  auto& g = states_[group];
  for (auto i = position; i < g.queue.size(); ++i) {
    carry_out(group, *g.queue[i].work, at);
    g.queue[i].after = at;
  }
  set_key(group, at[0].at_s);
}

/// The rest of a prompt that may have begun: the same walk, from where each guest is. Inputs that
/// have arrived count by their real times (ready_s), others by the plan.
double prefill_packing::carry_out_rest(std::uint32_t group, const entry& e, cursors& at) const {
  const auto& guests = groups_[group].guests;
  TROUPE_INVARIANT(at.size() == guests.size() && e.at.size() == guests.size(),
                   "a promised prompt is at some place on each guest of its group");
  for (std::size_t tile = 0; tile < e.work->hop_s.size(); ++tile) {
    double ready_s = 0;
    for (std::size_t i = 0; i < guests.size(); ++i) {
      const auto& p = e.at[i];
      if (tile < p.tile) continue;  // the next guest knows when its input is there
      auto run = e.work->guests[i][tile];
      if (tile == p.tile) run.count -= p.done;
      if (p.ready_s[tile] < never) ready_s = p.ready_s[tile];
      if (!at[i].carry_out(devices_[guests[i].device].windows, run, ready_s)) return never;
      ready_s = at[i].at_s + e.work->hop_s[tile];
    }
  }
  return at.back().at_s;
}

/// Plans all of the group's promises anew, from how far they are. Promises stay as they were made
/// even if the new plan breaks them: they were answers, and what a decoder does about a late
/// prefill is its own decision.
void prefill_packing::plan_again(std::uint32_t group, double now_s) {
  auto& g = states_[group];
  auto at = free_of(g);
  for (std::size_t i = 0; i < at.size(); ++i)
    if (!g.guests[i].running) at[i].at_s = std::max(at[i].at_s, now_s);
  for (auto& e : g.queue) {
    carry_out_rest(group, e, at);
    e.after = at;
  }
  set_key(group, at[0].at_s);
}

// ---- changes

void prefill_packing::set_windows(std::uint32_t device, idle_windows windows, double now_s) {
  auto& d = devices_[device];
  d.windows = std::move(windows);
  if (!d.windows.empty()) horizon_s_ = std::max(horizon_s_, d.windows.back().end);
  if (d.group == none) return;
  auto& g = states_[d.group];
  auto& room_s = kinds_[g.kind].room_s[d.guest];
  room_s = std::max(room_s, longest_s(d.windows));
  g.guests[d.guest].free.window = 0;
  plan_again(d.group, now_s);
}

// Under resumable the plan's granularity is refined once: operations that were counted as done
// count as sixteen each from then on, so that progress keeps its meaning.
void prefill_packing::set_factor(std::uint32_t device, double factor, double now_s) {
  auto& d = devices_[device];
  if (d.group == none) return;
  auto& rate = groups_[d.group].guests[d.guest].rate;
  const double change = factor / std::exchange(d.factor, factor);
  rate.token_s *= change;
  rate.pair_s *= change;
  find_kinds();
  const bool finer = options_.per_layer < measured_per_layer;
  options_.per_layer = measured_per_layer;
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    if (g != d.group && !finer) continue;
    for (auto& e : states_[g].queue) {
      e.work =
          std::make_shared<const prefill_work>(work_of_tiles(groups_[g], e.work->rows, options_));
      if (finer && options_.rule == packing_rule::resumable)
        for (auto& p : e.at) p.done *= measured_per_layer;
    }
    plan_again(g, now_s);
  }
}

// Entries are addressed by number, not by position: those behind the removed one move up by one,
// and guests that are past it count one less.
bool prefill_packing::remove(std::uint32_t group, std::uint64_t id, double now_s) {
  auto& g = states_[group];
  const auto it = std::ranges::find(g.queue, id, [](const auto& e) { return e.request.id; });
  if (it == g.queue.end()) return false;
  const auto number = g.first + static_cast<std::uint64_t>(it - g.queue.begin());
  for (auto& guest : g.guests) {
    if (guest.current == number && guest.running) {
      guest.running = false;
      guest.free.at_s = std::max(guest.free.at_s, now_s);
    }
    if (guest.current > number) --guest.current;
  }
  g.queue.erase(it);
  TROUPE_INVARIANT(promised_ > 0, "a promise that is taken back was counted");
  --promised_;
  plan_again(group, now_s);
  return true;
}

double prefill_packing::planned_end_s(std::uint32_t group, std::uint64_t id) const {
  const auto& queue = states_[group].queue;
  const auto it = std::ranges::find(queue, id, [](const auto& e) { return e.request.id; });
  return it == queue.end() || it->after.empty() ? never : it->after.back().at_s;
}

void prefill_packing::delay(std::uint32_t group, double until_s, double now_s) {
  for (auto& guest : states_[group].guests)
    if (!guest.running) guest.free.at_s = std::max(guest.free.at_s, until_s);
  plan_again(group, now_s);
}

// ---- admission

// by_free_ is ordered by a lower bound of the time at which a group's first guest is free. Bounds
// are raised lazily, when a search comes to the group (best_place): time passes for all groups, and
// updating thousands of them for each admission would cost more than the search.
void prefill_packing::set_key(std::uint32_t group, double key) {
  auto& g = states_[group];
  by_free_.erase({g.key, group});
  g.key = key;
  by_free_.insert({key, group});
}

/// When the group's first guest has nothing promised and a bubble; never: it has none.
double prefill_packing::free_s(std::uint32_t group, double now_s) {
  auto& g = states_[group];
  auto& free = g.guests[0].free;
  TROUPE_INVARIANT(g.queue.empty() || !g.queue.back().after.empty(),
                   "a promised prompt has an end on each guest");
  auto at = g.queue.empty() ? free : g.queue.back().after[0];
  const bool any = at.move_to(first_windows(group), now_s);
  if (g.queue.empty()) free = at;
  return any ? at.at_s : never;
}

std::optional<prefill_packing::place> prefill_packing::place_in(std::uint32_t group,
                                                                const prefill_prompt& r,
                                                                double now_s) const {
  const auto& g = states_[group];
  const auto& w = *kinds_[g.kind].work;
  place p{group, position_of(g, r), 0, 0};
  auto at = before(g, p.position, earliest_s(now_s));
  if (!at[0].move_to_fitting(first_windows(group), w.guests[0][0], at[0].at_s)) return {};
  p.begin_s = at[0].at_s;
  p.end_s = carry_out(group, w, at);
  if (!in_time(p.end_s, r.latest_s) || !keeps(group, p.position, std::move(at))) return {};
  return p;
}

/// Branch and bound over the groups in the order in which they are free. A group that is free at t
/// ends the prompt no sooner than t + min_s, the longest of its guests' own times; the search ends
/// when that exceeds the best end so far, or the deadline. A request that goes before promised ones
/// may begin sooner than its group is free, so that for it all groups are examined. `full`: a group
/// could take it but for max_promised.
std::optional<prefill_packing::place> prefill_packing::best_place(const prefill_prompt& r,
                                                                  double now_s, bool& full) {
  const bool first_begin = options_.rule == packing_rule::whole;
  const double from_s = earliest_s(now_s);
  double min_s = never;
  for (const auto& k : kinds_) min_s = std::min(min_s, k.work->min_s);
  const bool behind_all = options_.in_order || !last_ || !goes_before(r, *last_);
  std::optional<place> best;
  std::uint32_t examined = 0;
  for (auto it = by_free_.begin(); it != by_free_.end();) {
    const auto [key, group] = *it;
    if (behind_all) {
      const double soonest_s = std::max(key, from_s);
      if (soonest_s + min_s > r.latest_s) break;
      if (best && (first_begin ? soonest_s > best->begin_s : soonest_s + min_s >= best->end_s))
        break;
      if (const double fresh = free_s(group, now_s); fresh > std::max(key, now_s)) {
        it = std::next(it);
        set_key(group, fresh);
        const std::pair moved{fresh, group};
        if (it == by_free_.end() || moved < *it) it = by_free_.find(moved);
        continue;
      }
    }
    ++it;
    const auto found = place_in(group, r, now_s);
    if (options_.max_promised > 0 && states_[group].queue.size() >= options_.max_promised) {
      full |= found.has_value();
      continue;
    }
    if (found && (!best || (first_begin ? std::pair{found->begin_s, found->end_s} <
                                              std::pair{best->begin_s, best->end_s}
                                        : found->end_s < best->end_s)))
      best = found;
    if (best && ++examined >= options_.max_examined) break;
  }
  return best;
}

tl::expected<prefill_promise, decline_reason> prefill_packing::admit(const prefill_prompt& r,
                                                                     double now_s) {
  prepare(r.tokens);
  if (const auto why = impossible(r, now_s)) return tl::unexpected{*why};
  bool full = false;
  const auto found = best_place(r, now_s, full);
  if (!found)
    return tl::unexpected{full ? decline_reason::queue_full
                               : decline_reason::no_bubble_before_deadline};
  auto& g = states_[found->group];
  entry e{r, kinds_[g.kind].work, {}, {}, false, r.latest_s};
  if (options_.patience > 0)
    e.by_s =
        std::min(e.by_s, now_s + options_.patience * (found->end_s - now_s) + options_.patience_s);
  for (std::size_t i = 0; i < g.guests.size(); ++i)
    e.at.push_back({0, 0, std::vector<double>(e.work->hop_s.size(), i == 0 ? 0 : never)});
  auto at = before(g, found->position, earliest_s(now_s));
  e.at[0].ready_s[0] = earliest_s(now_s);
  last_begin_s_ = found->begin_s;
  g.queue.insert(g.queue.begin() + static_cast<std::ptrdiff_t>(found->position), std::move(e));
  plan_from(found->group, found->position, std::move(at));
  if (promised_++ == 0 || goes_before(*last_, r)) last_ = r;
  return prefill_promise{found->group, found->end_s};
}

// ---- execution

// A piece is as many operations of the guest's present tile as the bubble holds; the rest follows
// in the next bubble. The guest whose entry waits for input asks again when that arrives (ended()
// of the guest before it), one that waits for a bubble at the bubble's begin.
next_piece prefill_packing::next(std::uint32_t device, double now_s) {
  const auto& d = devices_[device];
  const auto& windows = d.windows;
  const auto group = d.group, guest = d.guest;
  if (group == none) return {};
  auto& g = states_[group];
  auto& own = g.guests[guest];
  const auto number = own.current - g.first;
  if (number >= g.queue.size()) return {};
  const bool chooses =
      options_.rule == packing_rule::look_ahead && guest == 0 && !g.queue[number].begun;
  if (chooses) look_ahead(group, now_s);
  auto& e = g.queue[number];
  const auto& p = e.at[guest];
  if (p.ready_s[p.tile] == never) return {};
  auto run = e.work->guests[guest][p.tile];
  run.count -= p.done;
  auto at = own.free;
  if (!at.move_to_fitting(windows, run, std::max(now_s, p.ready_s[p.tile]))) return {};
  if (at.at_s > now_s + tiny) {
    if (!chooses) return {{}, at.at_s};
    // Another request may fit the next bubble.
    auto bubble = own.free;
    bubble.move_to(windows, now_s);
    if (bubble.at_s <= now_s + tiny) bubble.at_s = windows[++bubble.window].begin;
    return {{}, bubble.at_s};
  }
  e.begun = true;
  own.running = true;
  own.free = at;
  const auto n = at.fitting(windows, run);
  return {prefill_piece{e.request.id, device, group, guest, p.tile, n, at.at_s,
                        at.at_s + n * run.each_s},
          never};
}

// Hands the tile to the next guest, and moves on to the next tile or entry. Guests end an entry in
// their order, so that it is at the front of the queue when the last one ends it.
bool prefill_packing::ended(const prefill_piece& piece) {
  auto& g = states_[piece.group];
  auto& own = g.guests[piece.guest];
  TROUPE_INVARIANT(own.current >= g.first && own.current - g.first < g.queue.size(),
                   "a guest that ends a piece has a prompt");
  auto& e = g.queue[own.current - g.first];
  TROUPE_INVARIANT(e.request.id == piece.request,
                   "a piece that ends is of its guest's present prompt");
  auto& p = e.at[piece.guest];
  own.free.at_s = piece.end_s;
  own.running = false;
  p.done += piece.operations;
  if (p.done < e.work->guests[piece.guest][p.tile].count) return false;
  const bool last_guest = piece.guest + 1 == g.guests.size();
  if (!last_guest) e.at[piece.guest + 1].ready_s[p.tile] = piece.end_s + e.work->hop_s[p.tile];
  TROUPE_INVARIANT(p.tile < e.work->hop_s.size(), "a tile that ends is one of its prompt");
  p.done = 0;
  if (++p.tile < e.work->hop_s.size()) return false;
  ++own.current;
  if (!last_guest) return false;
  TROUPE_INVARIANT(g.queue.front().request.id == piece.request,
                   "the prompts of a group end in their order");
  g.queue.pop_front();
  ++g.first;
  TROUPE_INVARIANT(promised_ > 0, "a prompt that ends was promised");
  --promised_;
  return true;
}

std::optional<std::uint32_t> prefill_packing::device_after(const prefill_piece& piece) const {
  const auto& guests = groups_[piece.group].guests;
  if (piece.guest + 1 == guests.size()) return {};
  return guests[piece.guest + 1].device;
}

}  // namespace troupe::planners
