#include "runtime/virtual/paced_links.hpp"

#include <algorithm>
#include <cmath>

#include "messages/base/invariant.hpp"

namespace troupe::runtime {

// The WAN of a datacenter as its gateway sees it: in simulations, and in real runs that emulate a
// WAN. A transfer over several node pairs (wan_path) starts when all of them are free, occupies
// them for bytes / (pairs * rate), and arrives after the link's delay. Its parts arrive evenly
// spaced, so that a receiver can go on with the first. Times are integers of nanoseconds: their
// sums do not depend on the order of additions.
namespace {

time_ns in_ns(double s) {
  return std::llround(std::clamp(s, 0.0, 1e6) * 1e9);
}

}  // namespace

// A rate of 0 is no limit of its own: the pair's, the connections' and the flows' rates limit each
// other.
time_ns link_rates::duration_ns(double bytes, std::uint32_t connections, double tensor_bytes,
                                std::uint32_t flows) const {
  double gbps = rates ? gbps_at(*rates, tensor_bytes) : node_gbps;
  const auto limit = [&](double by) {
    if (by > 0) gbps = gbps > 0 ? std::min(gbps, by) : by;
  };
  limit(connection_gbps * connections);
  if (flow_rates) limit(flows * gbps_at(*flow_rates, tensor_bytes));
  if (gbps <= 0) return 0;
  const double ns = bytes * 8 / gbps;  // a gigabit a second is a bit a nanosecond
  constexpr auto longest = paced_links::longest_ns;
  return ns < static_cast<double>(longest) ? std::llround(ns) : longest;
}

// Links that the cluster file does not list have default rates in simulations; real runs delay
// nothing that was not asked for.
paced_links::rates rates_from(const cluster& c, std::uint32_t datacenter, bool only_emulated) {
  paced_links::rates all(c.datacenters.size());
  for (std::uint32_t d = 0; d < all.size(); ++d) {
    const auto* w = wan_between(c, datacenter, d);
    if (only_emulated && !(w != nullptr && w->emulate)) continue;
    auto& r = all[d].emplace();
    r.node_gbps = w != nullptr ? w->node_gbps : unlisted_wan_gbps;
    r.connection_gbps = w != nullptr ? w->connection_gbps : 0;
    r.delay_ns = in_ns((w != nullptr ? w->rtt_ms : unlisted_wan_rtt_ms) * 1e-3 / 2);
    r.jitter_ns = in_ns(w != nullptr ? w->jitter_ms * 1e-3 : 0);
    if (w != nullptr) r.rates = w->rates, r.flow_rates = w->flow_rates;
  }
  return all;
}

paced_links::paced_links(const cluster& c, std::uint32_t datacenter, bool only_emulated,
                         random_source random, link_slowdown slow)
    : paced_links{rates_from(c, datacenter, only_emulated), random, std::move(slow)} {
  of_.emplace(datacenter, only_emulated);
}

void paced_links::follow(const cluster& c) {
  if (of_) to_ = rates_from(c, of_->first, of_->second);
}

// A slow link (a fault) applies to transfers that start while it lasts.
link_rates paced_links::rates_now(std::uint32_t datacenter) const {
  TROUPE_INVARIANT(paces(datacenter), "a rate is asked of a link that has one");
  auto r = *to_[datacenter];
  if (!slow_) return r;
  const double factor = slow_(datacenter);
  r.node_gbps /= factor;
  r.connection_gbps /= factor;
  for (auto* curve : {&r.rates, &r.flow_rates})
    if (*curve)
      for (auto& p : **curve) p.gbps /= factor;
  return r;
}

paced_links::running& paced_links::slot(std::uint32_t token) {
  if (running_.size() <= token) running_.resize(token + 1);
  return running_[token] = {};
}

// Everything in `t` may come from another host's frame: its bounds are checked first, and a queue
// beyond longest_ns is refused, so that neither memory nor times can overflow.
bool paced_links::start(time_ns now, std::uint32_t token, const transfer& t) {
  if (t.pairs == 0 || t.pairs > max_pairs || t.first_pair > max_pairs - t.pairs) return false;
  if (t.parts == 0 || t.parts > max_parts) return false;
  auto& over = hops_[{t.lease, t.from_stage, t.to_stage}];
  over.last_used = now;
  const auto end_pair = t.first_pair + t.pairs;
  if (over.pairs.size() < end_pair) over.pairs.resize(end_pair);
  if (over.pairs[t.first_pair].free_at - now > longest_ns) return false;
  auto& x = slot(token);
  const auto r = rates_now(t.datacenter);
  x.over = &over;
  x.parts = t.parts;
  x.duration = r.duration_ns(t.bytes / t.pairs, t.connections, t.bytes, t.flows);
  x.start = now;
  time_ns last_arrival = 0;
  for (auto p = t.first_pair; p < end_pair; ++p) {
    x.start = std::max(x.start, over.pairs[p].free_at);
    last_arrival = std::max(last_arrival, over.pairs[p].last_arrival);
  }
  TROUPE_INVARIANT(x.duration >= 0 && x.start >= now, "a transfer takes time, from now on");
  const auto end = x.start + x.duration;
  x.lag = r.delay_ns;
  // Jitter delays and never reorders: a pair delivers in order, as TCP does.
  if (r.jitter_ns > 0) {
    x.lag += static_cast<time_ns>(random_.uniform() * static_cast<double>(r.jitter_ns));
    x.lag = std::max(x.lag, last_arrival - end);
  }
  for (auto p = t.first_pair; p < end_pair; ++p) {
    TROUPE_INVARIANT(over.pairs[p].free_at <= x.start,
                     "a transfer starts when the one before it has left its node pairs");
    TROUPE_INVARIANT(over.pairs[p].last_arrival <= end + x.lag || r.jitter_ns == 0,
                     "jitter delays the tensors of a node pair and never reorders them");
    over.pairs[p] = {end, end + x.lag};
  }
  ++over.under_way;
  schedule(x.start + x.duration / x.parts + x.lag, token, 0);
  if (x.lag > 0) schedule(end, token, x.parts);
  return true;
}

void paced_links::start_small(time_ns now, std::uint32_t token, std::uint32_t datacenter) {
  slot(token);
  schedule(now + delay_ns(datacenter), token, 0);
}

void paced_links::schedule(time_ns at, std::uint32_t token, std::uint32_t part) {
  TROUPE_INVARIANT(token < running_.size(), "an event is of a transfer that runs");
  due_.push_back({at, ++sequence_, token, part});
  std::push_heap(due_.begin(), due_.end(), later);
}

// The heap has only the next part of each transfer.
std::optional<link_pacing::event> paced_links::take_event(time_ns now) {
  if (due_.empty() || due_.front().at > now) return std::nullopt;
  const auto due = due_.front();
  std::pop_heap(due_.begin(), due_.end(), later);
  due_.pop_back();
  const auto& x = running_[due.token];
  TROUPE_INVARIANT(due.part <= x.parts, "a transfer has no event after its last part");
  if (due.part == x.parts) return event{due.token, due.part, false, true, false};
  event e{due.token, due.part, true, false, false};
  if (due.part + 1 < x.parts) {
    schedule(x.start + x.duration * (due.part + 2) / x.parts + x.lag, due.token, due.part + 1);
    return e;
  }
  e.last = true;
  e.left = x.lag == 0;
  if (x.over != nullptr) {
    TROUPE_INVARIANT(x.over->under_way > 0, "a link counts its transfers until each has left it");
    --x.over->under_way;
  }
  return e;
}

// Entries of hops whose lease has ended; they hold no transfer.
void paced_links::forget(time_ns before) {
  std::erase_if(
      hops_, [&](const auto& h) { return h.second.under_way == 0 && h.second.last_used < before; });
}

}  // namespace troupe::runtime
