#include "actors/gateway/tensor_router.hpp"

#include <algorithm>
#include <cmath>

#include "messages/codec.hpp"

namespace troupe::actors {

namespace {

constexpr std::uint32_t no_tag = ~0U;
constexpr std::uint32_t rounds_of_an_instant = 3;
constexpr time_ns request_slack = 10'000'000;  // for hosts to answer, beside the round trip

time_ns in_ns(double s) {
  return std::llround(std::clamp(s, 0.0, 1e6) * 1e9);
}

link_rates rates_of(const wan_link* w, bool virtual_time) {
  link_rates r;
  r.open_ended = !virtual_time && !(w != nullptr && w->emulate);
  if (r.open_ended) return r;
  r.node_gbps = w != nullptr ? w->node_gbps : unlisted_wan_gbps;
  r.connection_gbps = w != nullptr ? w->connection_gbps : 0;
  r.delay = in_ns((w != nullptr ? w->rtt_ms : unlisted_wan_rtt_ms) * 1e-3 / 2);
  r.jitter = in_ns(w != nullptr ? w->jitter_ms * 1e-3 : 0);
  return r;
}

/// A simulated one has no body, and its size in its header.
std::uint64_t tensor_bytes(const frame& f) {
  if (!f.body.empty()) return f.body.bytes().size();
  const auto m = decode(f.header.bytes());
  const auto* t = m ? std::get_if<tensor>(&m->second) : nullptr;
  return t == nullptr ? 0 : t->bytes;
}

}  // namespace

tensor_router::tensor_router(runtime::host h, std::shared_ptr<const troupe::cluster> c,
                             bool virtual_time, link_slowdown slow_links)
    : host_{std::move(h)},
      cluster_{std::move(c)},
      slow_links_{std::move(slow_links)},
      site_{host_.self - 1},
      door_{virtual_time ? rounds_of_an_instant : 0, host_.random},
      retry_queue_{host_.net},
      held_of_(cluster_->nodes.size()) {
  for (std::uint32_t d = 0; d < cluster_->datacenters.size(); ++d)
    wan_.push_back(rates_of(wan_between(*cluster_, site_, d), virtual_time));
}

time_ns tensor_router::now() const {
  return std::llround(host_.clock->now_s() * 1e9);
}

std::uint32_t tensor_router::datacenter_of(address node) const {
  return cluster_->nodes[node_of(*cluster_, node)].datacenter;
}

link_rates tensor_router::rates_to(std::uint32_t datacenter) const {
  auto r = wan_[datacenter];
  if (!slow_links_) return r;
  const double factor = slow_links_(datacenter);
  r.node_gbps /= factor;
  r.connection_gbps /= factor;
  return r;
}

bool tensor_router::is_mine(address node) const {
  return is_node(*cluster_, node) && datacenter_of(node) == site_;
}

std::uint32_t tensor_router::hold(kind is, const frame& f, address from, address to) {
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(held_.size()));
    held_.emplace_back();
  }
  const auto token = free_.back();
  free_.pop_back();
  auto& h = held_[token];
  h.f = f;
  h.is = is;
  h.from = from;
  h.to = to;
  if (is_mine(from) && held_of_[node_of(*cluster_, from)]++ >= max_in_flight) credit(h);
  return token;
}

/// The transfer is through: its place is free.
void tensor_router::free(std::uint32_t token) {
  credit(held_[token]);
  const auto& h = held_[token];
  if (h.listed) {
    crossing_[h.key] = now() + 2 * wan_[datacenter_of(h.to)].delay + request_slack;
  }
  held_[token] = {};
  free_.push_back(token);
}

/// False: the same tensor is crossing already, or has just crossed and the request was under way.
bool tensor_router::list(std::uint32_t token, const tensor& t) {
  auto& h = held_[token];
  h.key = {t.from, t.to_pipeline, t.to_stage, t.what, t.iteration, t.microbatch};
  const auto [at, fresh] = crossing_.try_emplace(h.key, never_ns);
  if (!fresh && at->second > now()) return false;
  at->second = never_ns;
  return h.listed = true;
}

void tensor_router::credit(held& h) {
  if (h.credited) return;
  h.credited = true;
  if (is_mine(h.from)) --held_of_[node_of(*cluster_, h.from)];
  host_.net->handled(h.f);
}

void tensor_router::drop(const frame& f) {
  ++dropped_;
  host_.net->handled(f);
}

// ---- what comes

void tensor_router::arrived(const envelope& e, const frame& f) {
  if (e.type == type_id<stripe>) return gather(e, f);
  if (!is_node(*cluster_, e.to)) {  // the controller's, or a client's by way of it
    host_.net->send(e.to, f);
    return host_.net->handled(f);
  }
  const bool from_mine = is_mine(e.from), to_mine = is_mine(e.to);
  if (!to_mine && !from_mine && e.from != controller_address) return drop(f);  // not my way
  if (e.type == type_id<tensor>) return from_mine ? leaves(e, f) : deliver(e, f);
  if (!to_mine) return small(e, f);
  host_.net->send(e.to, f);
  host_.net->handled(f);
}

/// A tensor of one of my nodes.
void tensor_router::leaves(const envelope& e, const frame& f) {
  if (is_mine(e.to)) return deliver(e, f);
  auto m = decode(f.header.bytes());
  auto* t = m ? std::get_if<tensor>(&m->second) : nullptr;
  if (t == nullptr || held_.size() - free_.size() >= max_transfers) return drop(f);
  crosses(e, f, *t);
}

void tensor_router::crosses(const envelope& e, const frame& f, tensor t) {
  const bool simulated = f.body.empty() && t.bytes > 0;
  if (!simulated && t.bytes != f.body.bytes().size()) return drop(f);
  const auto token = hold(simulated ? kind::simulated : kind::striped, f, e.from, e.to);
  if (!list(token, t)) return free(token);
  auto& h = held_[token];
  if (!simulated) h.what = t;
  if (t.share.pairs == 0) t.share.first_pair = t.from.pipeline, t.share.pairs = 1;
  if (!simulated) {
    h.first_lane = runtime::tensor_lane + t.share.first_pair * t.share.connections;
    const auto lanes = std::uint64_t{t.share.pairs} * std::max(1U, t.share.connections);
    h.lanes = static_cast<std::uint32_t>(std::clamp(
        lanes, std::uint64_t{1}, std::clamp<std::uint64_t>(t.bytes / min_stripe_bytes, 1, 1024)));
    h.parts = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(t.bytes / (h.lanes * stripe_bytes), 1, wan_arbiter::max_parts));
  }
  if (!door_.offer(now(), t, rates_to(datacenter_of(e.to)), token, h.parts))
    return ++dropped_, free(token);
  traffic_.wan_sent_bytes += t.bytes;
}

/// Anything but a tensor, for another datacenter's node: it takes the way's time.
void tensor_router::small(const envelope& e, const frame& f) {
  const auto& r = wan_[datacenter_of(e.to)];
  if (r.open_ended || r.delay == 0 || held_.size() - free_.size() >= max_transfers) {
    host_.net->send(e.to, f);
    return host_.net->handled(f);
  }
  const auto token = hold(kind::small, f, e.from, e.to);
  credit(held_[token]);
  door_.pass(now(), r.delay, token);
}

/// A whole tensor for one of my nodes.
void tensor_router::deliver(const envelope& e, const frame& f) {
  (is_mine(e.from) ? traffic_.relayed_bytes : traffic_.wan_received_bytes) += tensor_bytes(f);
  if (retry_queue_.empty() && host_.net->send(e.to, f, runtime::tensor_lane))
    return host_.net->handled(f);
  const auto token = hold(kind::delivery, f, e.from, e.to);
  held_[token].unsent = 1;
  if (retry_queue_.send(now(), e.to, f, runtime::tensor_lane, token) != retry_queue::fate::waits)
    gone(token);
}

void tensor_router::gather(const envelope& e, const frame& f) {
  auto m = decode(f.header.bytes());
  const auto* s = m ? std::get_if<stripe>(&m->second) : nullptr;
  if (s == nullptr || e.to != host_.self || !is_gateway(*cluster_, e.from) ||
      !is_node(*cluster_, s->from) || gateway_address(datacenter_of(s->from)) != e.from ||
      !is_mine(s->to))
    return drop(f);
  const auto node = s->to;
  if (auto t = gatherer_.add(now(), e.from, *s, f.body)) {
    traffic_.wan_received_bytes += t->what.bytes;
    retry_queue_.send(now(), t->to, encode(t->from, t->to, t->what, std::move(t->body)),
                      runtime::tensor_lane, no_tag);
  }
  if (retry_queue_.bytes_to(node) < slow_node_bytes) return host_.net->handled(f);
  slow_[node].push_back(f);
}

// ---- what is due

time_ns tensor_router::next() const {
  const auto at = now();
  const auto door = door_.next(at);
  return retry_queue_.empty() ? door : std::min(door, at + retry_every);
}

void tensor_router::look() {
  const auto at = now();
  door_.look(at);
  while (const auto e = door_.take(at)) happen(*e);
  if (!retry_queue_.empty()) retry(0);
}

void tensor_router::happen(const wan_arbiter::event& e) {
  auto& h = held_[e.token];
  if (e.left) credit(h);
  if (e.last) h.through = true;
  if (!e.there) return;
  switch (h.is) {
    case kind::simulated:
      send_simulated(h);
      break;
    case kind::small:
      host_.net->send(h.to, std::move(h.f));
      break;
    default:
      send_stripes(e.token, e.part);
  }
  settle(e.token);
}

void tensor_router::send_simulated(held& h) {
  // Once it has left, its credit is given back and the frame is free to go.
  credit(h);
  retry_queue_.send(now(), h.to, std::move(h.f), runtime::tensor_lane, no_tag);
}

void tensor_router::send_stripes(std::uint32_t token, std::uint32_t part) {
  auto& h = held_[token];
  number(h);
  const auto gateway = gateway_address(datacenter_of(h.to));
  const cut_body cut{h.what.bytes, h.lanes * h.parts};
  stripe s;
  s.epoch = h.epoch;
  s.transfer = h.number;
  s.count = cut.count;
  s.from = h.from;
  s.to = h.to;
  s.what = h.what;
  for (std::uint32_t lane = 0; lane < h.lanes; ++lane) {
    s.index = part * h.lanes + lane;
    s.offset = cut.begin(s.index);
    auto f = encode(host_.self, gateway, s, cut.piece(h.f.body, s.index));
    const auto fate = retry_queue_.send(now(), gateway, std::move(f), h.first_lane + lane, token);
    if (fate == retry_queue::fate::waits) ++h.unsent;
    if (fate == retry_queue::fate::lost) ++dropped_;
  }
  if (part + 1 == h.parts) h.left = true;
}

/// Its place in the order of its flow, when it begins to cross.
void tensor_router::number(held& h) {
  if (h.numbered) return;
  const auto& t = h.what;
  auto& n = numbers_[{t.from.lease, t.from.pipeline, t.from.stage, t.to_pipeline, t.to_stage}];
  n.last_used = now();
  if (n.epoch == 0) n.epoch = static_cast<std::uint64_t>(n.last_used) + 1;
  h.epoch = n.epoch;
  h.number = n.next++;
  h.numbered = true;
}

/// A frame of this transfer waits no longer.
void tensor_router::gone(std::uint32_t token) {
  if (token == no_tag) return;
  auto& h = held_[token];
  --h.unsent;
  if (h.is == kind::delivery && h.unsent == 0) return free(token);
  settle(token);
}

/// Frees what has crossed and whose every stripe the transport has taken.
void tensor_router::settle(std::uint32_t token) {
  auto& h = held_[token];
  if (h.unsent > 0) return;
  if (h.is == kind::striped && h.left && !h.through && wan_[datacenter_of(h.to)].open_ended) {
    door_.ended(now(), token);
    h.through = true;
  }
  if (h.through) free(token);
}

void tensor_router::retry(time_ns too_old) {
  retry_queue_.retry(too_old, [this](std::uint32_t token) { gone(token); });
  std::erase_if(slow_, [this](auto& waiting) {
    if (retry_queue_.bytes_to(waiting.first) >= slow_node_bytes) return false;
    for (const auto& f : waiting.second) host_.net->handled(f);
    return true;
  });
}

void tensor_router::tidy() {
  const auto at = now();
  gatherer_.look(at);
  std::erase_if(crossing_, [&](const auto& c) { return c.second <= at; });
  retry(at - in_ns(cluster_->settings.lease_s));
  constexpr time_ns hour = 3'600'000'000'000;
  door_.forget(at - hour);
  std::erase_if(numbers_, [&](const auto& n) { return n.second.last_used < at - 24 * hour; });
}

}  // namespace troupe::actors
