#include "actors/gateway/wan_arbiter.hpp"

#include <algorithm>

#include "messages/base/invariant.hpp"

namespace troupe::actors {

/// ATLAS 4.2 and 4.3: the node pairs of a DP-cell are one link, which its pipelines use in turn,
/// each with the whole bandwidth, in the order of the schedule's turns.
bool wan_arbiter::offer(time_ns now, const tensor& t, std::uint32_t token) {
  const auto& path = t.path;
  const auto pairs = std::max(1U, path.pairs);
  if (pairs > max_pairs || path.first_pair > max_pairs - pairs) return false;
  const auto h = hop_of(now, {t.from.lease, t.from.stage, t.to_stage});
  if (h == none) return false;
  if (cells_by_token_.size() <= token) cells_by_token_.resize(token + 1);
  ++hops_[h].unfinished;
  cells_by_token_[token] = {h, none};
  if (!path.serialized) return started_.push_back(token), true;
  const auto c = cell_of(hops_[h], path.first_pair);
  cells_by_token_[token].cell = c;
  enqueue(hops_[h].cells[c], t, token);
  decide(cells_by_token_[token]);
  return true;
}

std::optional<std::uint32_t> wan_arbiter::take_started() {
  if (started_.empty()) return std::nullopt;
  const auto token = started_.front();
  started_.pop_front();
  return token;
}

/// Indices stay valid while a hop is known.
std::uint32_t wan_arbiter::hop_of(time_ns now, const hop_key& k) {
  auto known = by_key_.find(k);
  if (known == by_key_.end()) {
    if (hops_.size() >= max_hops) return none;
    known = by_key_.emplace(k, hops_.add({})).first;
  }
  hops_[known->second].last_used = now;
  return known->second;
}

std::uint32_t wan_arbiter::cell_of(hop& h, std::uint32_t first) {
  for (std::uint32_t i = 0; i < h.cells.size(); ++i)
    if (h.cells[i].first == first) return i;
  h.cells.emplace_back().first = first;
  return static_cast<std::uint32_t>(h.cells.size() - 1);
}

/// A flow's transfers stay in order: none has a smaller priority than those before it.
void wan_arbiter::enqueue(cell& c, const tensor& t, std::uint32_t token) {
  priority when{t.iteration, t.path.turn, 0};
  const auto p = std::min(t.from.pipeline, max_pairs);
  if (c.flows.size() <= p) c.flows.resize(p + 1);
  auto& f = c.flows[p];
  // A resent tensor has an old turn: without this it would overtake a later one of its own flow,
  // and the receiver would see them out of order.
  if (f.waiting++ > 0) when = std::max(when, f.latest);
  f.latest = when;
  when.sequence = ++sequence_;
  c.waiting.push_back({when, token, p});
  std::push_heap(c.waiting.begin(), c.waiting.end(), after);
}

/// The cell has become free, or a transfer was offered: starts the next one if both is the case.
void wan_arbiter::decide(const cell_index& p) {
  auto& c = hops_[p.hop].cells[p.cell];
  if (c.busy || c.rounds > 0 || c.waiting.empty()) return;
  if (rounds_ == 0) return choose(c);
  c.rounds = rounds_;
  choosing_.push_back(p);
}

void wan_arbiter::choose(cell& c) {
  TROUPE_INVARIANT(!c.busy && !c.waiting.empty());
  TROUPE_INVARIANT(c.flows[c.waiting.front().pipeline].waiting > 0);
  const auto token = c.waiting.front().token;
  --c.flows[c.waiting.front().pipeline].waiting;
  std::pop_heap(c.waiting.begin(), c.waiting.end(), after);
  c.waiting.pop_back();
  c.busy = true;
  started_.push_back(token);
}

/// In virtual time all arrivals of one instant are handled before the clock moves. Some rounds of
/// polling let each of them be offered first, so that the choice does not depend on their order.
void wan_arbiter::poll() {
  std::erase_if(choosing_, [&](const cell_index& p) {
    auto& c = hops_[p.hop].cells[p.cell];
    if (--c.rounds > 0) return false;
    choose(c);
    return true;
  });
}

void wan_arbiter::on_left(std::uint32_t token) {
  TROUPE_INVARIANT(token < cells_by_token_.size() && cells_by_token_[token].hop != none);
  const auto p = cells_by_token_[token];
  // Not serialized: no other transfer waits for it.
  if (p.cell == none) return;
  TROUPE_INVARIANT(hops_[p.hop].cells[p.cell].busy);
  hops_[p.hop].cells[p.cell].busy = false;
  decide(p);
}

void wan_arbiter::on_finished(std::uint32_t token) {
  TROUPE_INVARIANT(token < cells_by_token_.size() && cells_by_token_[token].hop != none);
  auto& h = hops_[std::exchange(cells_by_token_[token], {}).hop];
  TROUPE_INVARIANT(h.unfinished > 0);
  --h.unfinished;
}

void wan_arbiter::forget(time_ns before) {
  std::erase_if(by_key_, [&](const auto& known) {
    const auto& h = hops_[known.second];
    if (h.unfinished > 0 || h.last_used >= before) return false;
    hops_.erase(known.second);
    return true;
  });
}

}  // namespace troupe::actors
