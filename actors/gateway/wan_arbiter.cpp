#include "actors/gateway/wan_arbiter.hpp"

#include <algorithm>
#include <cmath>

#include "messages/invariant.hpp"

namespace troupe::actors {

time_ns link_rates::duration(double bytes, std::uint32_t connections) const {
  const double by_connections = connection_gbps * connections;
  const double gbps = node_gbps <= 0        ? by_connections
                      : by_connections <= 0 ? node_gbps
                                            : std::min(node_gbps, by_connections);
  if (gbps <= 0) return 0;
  const double ns = bytes * 8 / gbps;  // a gigabit a second is a bit a nanosecond
  return ns < static_cast<double>(wan_arbiter::longest) ? std::llround(ns) : wan_arbiter::longest;
}

bool wan_arbiter::offer(time_ns now, const tensor& t, const link_rates& r, std::uint32_t token,
                        std::uint32_t parts) {
  const auto& share = t.share;
  const auto wanted = std::max(1U, share.pairs);
  if (wanted > max_pairs || share.first_pair > max_pairs - wanted || parts == 0 ||
      parts > max_parts)
    return false;
  const auto h = hop_of(now, {t.from.lease, t.from.stage, t.to_stage});
  if (h == no_hop) return false;
  auto& way = hops_[h];
  if (way.pairs.size() < share.first_pair + wanted) way.pairs.resize(share.first_pair + wanted);
  if (way.pairs[share.first_pair].free - now > longest) return false;
  if (transfers_.size() <= token) transfers_.resize(token + 1);
  auto& x = transfers_[token];
  x = {};
  x.rates = r;
  x.hop = h;
  x.first = share.first_pair;
  x.pairs = wanted;
  x.connections = std::max(1U, share.connections);
  x.parts = parts;
  x.bytes = static_cast<double>(t.bytes);
  ++way.crossing;
  if (!share.in_turn) return start(now, token), true;
  x.cell = cell_of(way, share.first_pair);
  wait_in(way.cells[x.cell], t, token);
  decide(now, h, x.cell);
  return true;
}

void wan_arbiter::pass(time_ns now, time_ns duration, std::uint32_t token) {
  if (transfers_.size() <= token) transfers_.resize(token + 1);
  transfers_[token] = {};
  schedule(now + duration, token, 0);
}

std::uint32_t wan_arbiter::hop_of(time_ns now, const hop_key& k) {
  const auto known = by_key_.find(k);
  if (known != by_key_.end()) {
    hops_[known->second].last_used = now;
    return known->second;
  }
  if (hops() >= max_hops) return no_hop;
  if (free_hops_.empty()) {
    free_hops_.push_back(static_cast<std::uint32_t>(hops_.size()));
    hops_.emplace_back();
  }
  const auto i = free_hops_.back();
  free_hops_.pop_back();
  hops_[i] = {};
  hops_[i].key = k;
  hops_[i].used = true;
  hops_[i].last_used = now;
  by_key_.emplace(k, i);
  return i;
}

std::uint32_t wan_arbiter::cell_of(hop& h, std::uint32_t first) {
  for (std::uint32_t i = 0; i < h.cells.size(); ++i)
    if (h.cells[i].first == first) return i;
  h.cells.emplace_back().first = first;
  return static_cast<std::uint32_t>(h.cells.size() - 1);
}

/// A stage's tensors never change places, whatever turns it gives them.
void wan_arbiter::wait_in(cell& c, const tensor& t, std::uint32_t token) {
  turn when{t.iteration, t.share.turn, 0};
  const auto p = std::min(t.from.pipeline, max_pairs);
  if (c.flows.size() <= p) c.flows.resize(p + 1);
  auto& f = c.flows[p];
  if (f.waiting++ > 0) when = std::max(when, f.latest);
  f.latest = when;
  when.sequence = ++sequence_;
  c.waiting.push_back({when, token, p});
  std::push_heap(c.waiting.begin(), c.waiting.end(), after);
}

/// The cell has become free, or somebody has come.
void wan_arbiter::decide(time_ns now, std::uint32_t hop_index, std::uint32_t cell_index) {
  auto& c = hops_[hop_index].cells[cell_index];
  if (c.busy || c.rounds > 0 || c.waiting.empty()) return;
  if (rounds_ == 0) return choose(now, c);
  c.rounds = rounds_;
  choosing_.emplace_back(hop_index, cell_index);
}

void wan_arbiter::choose(time_ns now, cell& c) {
  TROUPE_INVARIANT(!c.busy && !c.waiting.empty());
  TROUPE_INVARIANT(c.flows[c.waiting.front().pipeline].waiting > 0);
  const auto token = c.waiting.front().token;
  --c.flows[c.waiting.front().pipeline].waiting;
  std::pop_heap(c.waiting.begin(), c.waiting.end(), after);
  c.waiting.pop_back();
  c.busy = true;
  start(now, token);
}

void wan_arbiter::look(time_ns now) {
  std::erase_if(choosing_, [&](const auto& at) {
    auto& c = hops_[at.first].cells[at.second];
    if (--c.rounds > 0) return false;
    choose(now, c);
    return true;
  });
}

void wan_arbiter::start(time_ns now, std::uint32_t token) {
  auto& x = transfers_[token];
  auto& pairs = hops_[x.hop].pairs;
  x.start = now;
  if (x.rates.open_ended) return schedule(now, token, 0);
  x.duration = x.rates.duration(x.bytes / x.pairs, x.connections);
  time_ns there = 0;
  for (auto p = x.first; p < x.first + x.pairs; ++p) {
    x.start = std::max(x.start, pairs[p].free);
    there = std::max(there, pairs[p].there);
  }
  const auto end = x.start + x.duration;
  x.lag = x.rates.delay;
  if (x.rates.jitter > 0) {
    x.lag += static_cast<time_ns>(random_.uniform() * static_cast<double>(x.rates.jitter));
    x.lag = std::max(x.lag, there - end);
  }
  for (auto p = x.first; p < x.first + x.pairs; ++p) pairs[p] = {end, end + x.lag};
  schedule(x.start + x.duration / x.parts + x.lag, token, 0);
  if (x.lag > 0) schedule(end, token, x.parts);
}

void wan_arbiter::schedule(time_ns at, std::uint32_t token, std::uint32_t part) {
  due_.push_back({at, ++sequence_, token, part});
  std::push_heap(due_.begin(), due_.end(), later);
}

std::optional<wan_arbiter::event> wan_arbiter::take(time_ns now) {
  if (due_.empty() || due_.front().at > now) return std::nullopt;
  const auto due = due_.front();
  std::pop_heap(due_.begin(), due_.end(), later);
  due_.pop_back();
  const auto& x = transfers_[due.token];
  TROUPE_INVARIANT(due.part <= x.parts);
  event e{due.token, due.part, true, false, false};
  if (due.part == x.parts) {
    e.there = false;
    e.left = true;
    leave(due.at, x);
  } else if (due.part + 1 < x.parts) {
    const auto next = due.part + 2;
    if (x.rates.open_ended)
      schedule(due.at, due.token, due.part + 1);
    else
      schedule(x.start + x.duration * next / x.parts + x.lag, due.token, due.part + 1);
  } else if (!x.rates.open_ended) {
    e.last = true;
    e.left = x.lag == 0;
    if (e.left) leave(due.at, x);
    finish(x);
  }
  return e;
}

void wan_arbiter::ended(time_ns now, std::uint32_t token) {
  TROUPE_INVARIANT(token < transfers_.size() && transfers_[token].rates.open_ended);
  leave(now, transfers_[token]);
  finish(transfers_[token]);
}

void wan_arbiter::leave(time_ns now, const transfer& x) {
  if (x.hop == no_hop || x.cell == no_cell) return;
  TROUPE_INVARIANT(hops_[x.hop].cells[x.cell].busy);
  hops_[x.hop].cells[x.cell].busy = false;
  decide(now, x.hop, x.cell);
}

void wan_arbiter::finish(const transfer& x) {
  if (x.hop == no_hop) return;
  TROUPE_INVARIANT(hops_[x.hop].crossing > 0);
  --hops_[x.hop].crossing;
}

void wan_arbiter::forget(time_ns before) {
  for (std::uint32_t i = 0; i < hops_.size(); ++i) {
    auto& h = hops_[i];
    if (!h.used || h.crossing > 0 || h.last_used >= before) continue;
    by_key_.erase(h.key);
    h = {};
    free_hops_.push_back(i);
  }
}

}  // namespace troupe::actors
