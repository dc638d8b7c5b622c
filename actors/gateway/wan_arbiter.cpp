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
  TROUPE_INVARIANT(cells_by_token_[token].hop == none,
                   "a token is offered again only after its transfer has finished");
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
  TROUPE_INVARIANT(f.waiting == 1 || f.latest <= when,
                   "a transfer does not overtake one of its own flow");
  f.latest = when;
  when.sequence = ++sequence_;
  c.waiting.push_back({when, token, p});
  std::push_heap(c.waiting.begin(), c.waiting.end(), after);
}

/// The cell has become free, or a transfer was offered: starts the next one if both is the case.
void wan_arbiter::decide(const cell_index& p) {
  TROUPE_INVARIANT(p.cell < hops_[p.hop].cells.size(), "a transfer waits in a cell of its hop");
  auto& c = hops_[p.hop].cells[p.cell];
  if (c.busy || c.rounds > 0 || c.waiting.empty()) return;
  if (rounds_ == 0) return choose(c);
  c.rounds = rounds_;
  choosing_.push_back(p);
}

void wan_arbiter::choose(cell& c) {
  TROUPE_INVARIANT(!c.busy && !c.waiting.empty(),
                   "a link that sends next is idle, and a transfer waits for it");
  TROUPE_INVARIANT(c.flows[c.waiting.front().pipeline].waiting > 0,
                   "a transfer that waits is counted in its pipeline's flow");
  const auto token = c.waiting.front().token;
  TROUPE_INVARIANT(token < cells_by_token_.size() && cells_by_token_[token].hop != none,
                   "a transfer that is started was offered");
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
    TROUPE_INVARIANT(c.rounds > 0, "a cell that chooses has rounds left");
    if (--c.rounds > 0) return false;
    choose(c);
    return true;
  });
}

void wan_arbiter::on_left(std::uint32_t token) {
  TROUPE_INVARIANT(token < cells_by_token_.size() && cells_by_token_[token].hop != none,
                   "only a transfer that was added leaves the link");
  const auto p = cells_by_token_[token];
  // Not serialized: no other transfer waits for it.
  if (p.cell == none) return;
  TROUPE_INVARIANT(hops_[p.hop].cells[p.cell].busy,
                   "a link is busy until its transfer has left it");
  hops_[p.hop].cells[p.cell].busy = false;
  decide(p);
}

void wan_arbiter::on_finished(std::uint32_t token) {
  TROUPE_INVARIANT(token < cells_by_token_.size() && cells_by_token_[token].hop != none,
                   "a transfer that was added finishes once");
  auto& h = hops_[std::exchange(cells_by_token_[token], {}).hop];
  TROUPE_INVARIANT(h.unfinished > 0, "a hop counts its transfers until each has finished");
  --h.unfinished;
}

void wan_arbiter::forget(time_ns before) {
  std::erase_if(by_key_, [&](const auto& known) {
    const auto& h = hops_[known.second];
    if (h.unfinished > 0 || h.last_used >= before) return false;
    TROUPE_INVARIANT(std::ranges::none_of(h.cells, &cell::busy),
                     "a link without transfers is idle");
    hops_.erase(known.second);
    return true;
  });
}

}  // namespace troupe::actors
