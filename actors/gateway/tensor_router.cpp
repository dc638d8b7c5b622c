#include "actors/gateway/tensor_router.hpp"

#include <algorithm>
#include <cmath>

#include "messages/base/invariant.hpp"
#include "messages/codec/codec.hpp"

namespace troupe::actors {

namespace {

constexpr std::uint32_t no_token = ~0U;
constexpr time_ns request_slack = 10'000'000;  // hosts' part of a request's round trip

std::optional<tensor> tensor_in(const frame& f) {
  auto m = decode(f.header.bytes());
  if (!m || !std::holds_alternative<tensor>(m->second)) return {};
  return std::get<tensor>(m->second);
}

/// A simulated tensor has no body; its header has the size.
std::uint64_t tensor_bytes(const frame& f) {
  if (!f.body.empty()) return f.body.bytes().size();
  const auto t = tensor_in(f);
  return t ? t->bytes : 0;
}

}  // namespace

tensor_router::tensor_router(runtime::host h, shared_cluster c, wan_options wan)
    : host_{std::move(h)},
      cluster_{std::move(c)},
      datacenter_{troupe::datacenter_of(host_.self)},
      pacing_{std::move(wan.pacing)},
      arbiter_{wan.rounds},
      retry_queue_{host_.net},
      unhandled_(cluster_->nodes.size()) {}

void tensor_router::follow_cluster() {
  TROUPE_INVARIANT(unhandled_.size() <= cluster_->nodes.size(),
                   "nodes keep their places in the gateway's next cluster");
  unhandled_.resize(cluster_->nodes.size());
  for (auto* counts : {&traffic_.sent_to, &traffic_.resent_to})
    if (*counts) (*counts)->resize(cluster_->datacenters.size());
  pacing_->follow(*cluster_);
}

time_ns tensor_router::now() const {
  return std::llround(host_.clock->now_s() * 1e9);
}

std::uint32_t tensor_router::datacenter_of(address node) const {
  TROUPE_INVARIANT(node_of(node) < cluster_->nodes.size(), "a frame's node is one of the cluster");
  return cluster_->nodes[node_of(node)].datacenter;
}

bool tensor_router::is_local(address node) const {
  return is_node(*cluster_, node) && datacenter_of(node) == datacenter_;
}

// ---- transfers

std::uint32_t tensor_router::hold(transfer t) {
  const auto token = transfers_.add(std::move(t));
  auto& held = transfers_[token];
  // Beyond the limit a frame is acknowledged at once. Keeping its credit would stop everything from
  // that node, small frames too, and the transport bounds what it has under way itself.
  TROUPE_INVARIANT(!is_local(held.from) || node_of(held.from) < unhandled_.size(),
                   "the frames of each local node are counted");
  if (is_local(held.from) && unhandled_[node_of(held.from)]++ >= max_in_flight) give_credit(held);
  TROUPE_INVARIANT(!is_local(held.from) || unhandled_[node_of(held.from)] <= max_in_flight,
                   "a node has no more frames unacknowledged than may be");

  return token;
}

void tensor_router::release(std::uint32_t token, bool dropped) {
  auto& t = transfers_[token];
  give_credit(t);
  if (t.listed) {
    const auto& h = t.header;
    // A request for this tensor may have been sent until it arrives there, and takes as long to
    // come here: what is asked for in that time is on its way already.
    crossing_[{h.from, h.to_pipeline, h.to_stage, h.what, h.iteration, h.microbatch}] =
        now() + 2 * pacing_->delay_ns(datacenter_of(t.to)) + request_slack;
  }
  t.state.end(dropped);
  transfers_.erase(token);
}

/// Exactly once for each frame (take_credit): a credit that is returned twice lets a node overrun
/// the connection, one that is lost blocks it for ever.
void tensor_router::give_credit(transfer& t) {
  if (!t.state.take_credit()) return;
  if (is_local(t.from)) {
    auto& unhandled = unhandled_[node_of(t.from)];
    TROUPE_INVARIANT(unhandled > 0,
                     "a node's credit is returned only for a frame that it has sent");
    --unhandled;
  }
  host_.net->handled(t.f);
}

/// False: a resend of a tensor that is crossing, or that left so recently that its request was sent
/// before it arrived.
bool tensor_router::list_crossing(transfer& t) {
  const auto& h = t.header;
  const tensor_key key{h.from, h.to_pipeline, h.to_stage, h.what, h.iteration, h.microbatch};
  const auto [at, fresh] = crossing_.try_emplace(key, never_ns);
  if (!fresh && at->second > now()) return false;
  at->second = never_ns;
  return t.listed = true;
}

// ---- routes

void tensor_router::on_frame(const envelope& e, const frame& f) {
  if (e.type == type_id<stripe>) return on_stripe(e, f);
  if (!is_node(*cluster_, e.to)) return forward(e.to, f);  // controller, or client
  const bool from_local =
      is_local(e.from) || (is_front(*cluster_, e.from) &&
                           gateway_of(*cluster_, e.from) == gateway_address(datacenter_));
  const bool to_local = is_local(e.to);
  // A gateway is no transit between two other datacenters: links are scheduled at their sending
  // end, and such a frame would pass unscheduled.
  if (!to_local && !from_local && e.from != controller_address) return host_.net->handled(f);
  if (e.type == type_id<tensor>) return to_local ? deliver(e, f) : send_over_wan(e, f);
  const auto lane = runtime::lane_of_type(e.type);
  if (e.type == type_id<prefill_block> && f.body.bytes().size() > runtime::largest_block_bytes)
    return host_.net->handled(f);
  to_local ? forward(e.to, f, lane) : send_small(e, f);
}

/// Best effort. The transport refuses what has no credit, and senders repeat what must arrive.
void tensor_router::forward(address to, const frame& f, std::uint32_t lane) {
  host_.net->send(to, f, lane);
  host_.net->handled(f);
}

/// A complete tensor for a local node.
void tensor_router::deliver(const envelope& e, const frame& f) {
  (is_local(e.from) ? traffic_.relayed_bytes : traffic_.wan_received_bytes) += tensor_bytes(f);
  if (retry_queue_.empty() && host_.net->send(e.to, f, runtime::tensor_lane))
    return host_.net->handled(f);
  const auto token = hold({transfer::kind::delivery, f, e.from, e.to, {1, false}, {}, {}, {}});
  auto& state = transfers_[token].state;
  state.part_begins(0);
  // In order behind what waits for this node already; the token returns the sender's credit when
  // the frame has left the queue.
  const auto fate = retry_queue_.send(now(), e.to, f, runtime::tensor_lane, token);
  if (fate == retry_queue::fate::waits) state.frame_queued();
  state.part_ends();
  release_if_over(token);
}

/// Any frame but a tensor, for another datacenter's node: delayed by the link's latency. Its size
/// is neglected beside tensors, and it does not wait for them.
void tensor_router::send_small(const envelope& e, const frame& f) {
  const auto datacenter = datacenter_of(e.to);
  if (pacing_->delay_ns(datacenter) == 0 || is_full()) return forward(e.to, f);
  const auto token = hold({transfer::kind::small, f, e.from, e.to, {1, true}, {}, {}, {}});
  give_credit(transfers_[token]);
  pacing_->start_small(now(), token, datacenter);
}

void tensor_router::send_over_wan(const envelope& e, const frame& f) {
  auto t = tensor_in(f);
  if (!t || is_full()) return host_.net->handled(f);
  const bool simulated = f.body.empty() && t->bytes > 0;
  // The size in the header decides the link's time and the stripes, so a frame with another body is
  // not believed.
  if (!simulated && t->bytes != f.body.bytes().size()) return host_.net->handled(f);
  transfer x{simulated ? transfer::kind::simulated : transfer::kind::striped,
             f,
             e.from,
             e.to,
             {},
             *t,
             {},
             {}};
  if (t->path.pairs == 0) t->path.first_pair = t->from.pipeline, t->path.pairs = 1;
  if (!simulated) x.layout = layout_of(*t, max_parts);
  TROUPE_INVARIANT(x.layout.lanes >= 1 && x.layout.parts >= 1,
                   "a tensor that crosses has a stripe");
  TROUPE_INVARIANT(x.layout.parts <= max_parts,
                   "a tensor crosses in no more parts than links may have");
  x.state = {x.layout.parts, true};
  const auto bytes = t->bytes;
  const bool resent = t->resent.value_or(false);
  const auto token = hold(std::move(x));
  // Listed first: a tensor that is dropped here, as a resend or for want of a link, takes no place
  // in the order.
  if (!list_crossing(transfers_[token])) return release(token, true);
  if (!arbiter_.offer(now(), *t, token)) return release(token, true);
  traffic_.wan_sent_bytes += bytes;
  if (!simulated || prices_traffic(*cluster_))
    count_to(traffic_.sent_to, datacenter_of(e.to), bytes);
  if (resent) count_to(traffic_.resent_to, datacenter_of(e.to), bytes);
  start_transfers();
}

void tensor_router::count_to(std::optional<std::vector<std::uint64_t>>& counts,
                             std::uint32_t datacenter, std::uint64_t bytes) {
  if (!counts) counts.emplace(cluster_->datacenters.size());
  TROUPE_INVARIANT(datacenter < counts->size(),
                   "bytes are counted for a datacenter of the cluster");
  TROUPE_INVARIANT(datacenter != datacenter_, "what crosses the WAN is for another datacenter");
  (*counts)[datacenter] += bytes;
}

void tensor_router::on_stripe(const envelope& e, const frame& f) {
  auto m = decode(f.header.bytes());
  const auto* s = m ? std::get_if<stripe>(&m->second) : nullptr;
  if (s == nullptr || e.to != host_.self || !is_gateway(*cluster_, e.from) ||
      !is_node(*cluster_, s->from) || gateway_address(datacenter_of(s->from)) != e.from ||
      !is_local(s->to))
    return host_.net->handled(f);
  const auto node = s->to;
  if (auto t = reassembler_.add(now(), e.from, *s, f.body)) {
    traffic_.wan_received_bytes += t->what.bytes;
    retry_queue_.send(now(), t->to, encode(t->from, t->to, t->what, std::move(t->body)),
                      runtime::tensor_lane, no_token);
  }
  // The stripe is held back unacknowledged, which stops the sending gateway: a slow node must not
  // fill this host's memory with other datacenters' tensors.
  if (retry_queue_.bytes_to(node) < slow_node_bytes) return host_.net->handled(f);
  held_back_[node].push_back(f);
}

// ---- crossing the WAN

void tensor_router::start_transfers() {
  while (const auto token = arbiter_.take_started()) start(*token);
}

/// The arbiter has started it. On a link that is not paced all parts are sent at once.
void tensor_router::start(std::uint32_t token) {
  auto& t = transfers_[token];
  TROUPE_INVARIANT(t.state.now() == transfer_state::phase::waiting,
                   "the arbiter starts a transfer that waits");
  TROUPE_INVARIANT(t.is == transfer::kind::striped || t.is == transfer::kind::simulated,
                   "the arbiter orders tensors that cross the WAN");
  const auto datacenter = datacenter_of(t.to);
  if (!pacing_->paces(datacenter)) {
    for (std::uint32_t part = 0; part < t.layout.parts; ++part) send_part(token, part);
    return release_if_over(token);
  }
  const auto& h = t.header;
  const auto& path = h.path;
  const bool own_pair = path.pairs == 0;
  const runtime::link_pacing::transfer on_link{datacenter,
                                               h.from.lease,
                                               h.from.stage,
                                               h.to_stage,
                                               own_pair ? h.from.pipeline : path.first_pair,
                                               own_pair ? 1 : path.pairs,
                                               std::max(1U, path.connections),
                                               static_cast<double>(h.bytes),
                                               t.layout.parts,
                                               std::clamp(h.flows.value_or(1), 1U, max_group_gpus)};
  // Refused: dropped as if it had crossed, so that the
  // cell is free again.
  if (pacing_->start(now(), token, on_link)) return;
  arbiter_.on_left(token);
  arbiter_.on_finished(token);
  release(token, true);
}

time_ns tensor_router::next_event_at() const {
  const auto at = now();
  if (arbiter_.is_choosing()) return at;
  const auto due = pacing_->next_event_at();
  return retry_queue_.empty() ? due : std::min(due, at + retry_every);
}

void tensor_router::on_event_due() {
  const auto at = now();
  arbiter_.poll();
  start_transfers();
  while (const auto e = pacing_->take_event(at)) on_link_event(*e);
  if (!retry_queue_.empty()) retry(0);
  start_transfers();
}

/// One event may say several things of a transfer: its bytes have left the sender's node pairs (the
/// next may start), a part has arrived, all have.
void tensor_router::on_link_event(const runtime::link_pacing::event& e) {
  auto& t = transfers_[e.token];
  TROUPE_INVARIANT(t.state.now() != transfer_state::phase::over,
                   "a link's event is of a transfer that is held");
  const bool in_order = t.is != transfer::kind::small;  // of the arbiter's transfers
  if (e.left) give_credit(t);
  if (e.left && in_order) {
    arbiter_.on_left(e.token);
    start_transfers();
  }
  if (e.arrived) send_part(e.token, e.part);
  if (!e.last) return;
  if (in_order) arbiter_.on_finished(e.token);
  transfers_[e.token].state.link_ended();
  release_if_over(e.token);
}

/// A part has crossed the link, or the link is not paced.
void tensor_router::send_part(std::uint32_t token, std::uint32_t part) {
  auto& t = transfers_[token];
  t.state.part_begins(part);
  if (t.is == transfer::kind::striped) {
    send_stripes(token, part);
  } else if (t.is == transfer::kind::small) {
    host_.net->send(t.to, t.f);
  } else {
    give_credit(t);
    retry_queue_.send(now(), t.to, std::move(t.f), runtime::tensor_lane, no_token);
  }
  t.state.part_ends();
}

void tensor_router::send_stripes(std::uint32_t token, std::uint32_t part) {
  auto& t = transfers_[token];
  // Numbered when it starts and not when it was offered: the order of a flow is that of crossing.
  if (part == 0) t.number = numbers_.next(now(), t.header);
  const auto gateway = gateway_address(datacenter_of(t.to));
  const auto& l = t.layout;
  TROUPE_INVARIANT(t.header.bytes == t.f.body.bytes().size(),
                   "the stripes of a tensor are cut from a body of the stated size");
  TROUPE_INVARIANT(part < l.parts, "a part that is sent is one of the layout");
  const cut_body cut{t.header.bytes, l.lanes * l.parts};
  stripe s{t.number.epoch, t.number.transfer, 0, cut.count, 0, t.from, t.to, t.header};
  for (std::uint32_t lane = 0; lane < l.lanes; ++lane) {
    s.index = part * l.lanes + lane;
    s.offset = cut.begin(s.index);
    TROUPE_INVARIANT(s.offset <= t.header.bytes, "a stripe begins within its tensor");
    auto f = encode(host_.self, gateway, s, cut.piece(t.f.body, s.index));
    const auto fate = retry_queue_.send(now(), gateway, std::move(f), l.first_lane + lane, token);
    if (fate == retry_queue::fate::waits) t.state.frame_queued();
  }
}

/// A queued frame of this transfer was accepted by the transport, or has expired.
void tensor_router::on_frame_gone(std::uint32_t token) {
  if (token == no_token) return;
  transfers_[token].state.frame_gone();
  release_if_over(token);
}

/// Releases a transfer that the transport has accepted and that no longer occupies the link. A link
/// that is not paced is free as soon as the transport has accepted the transfer.
void tensor_router::release_if_over(std::uint32_t token) {
  auto& t = transfers_[token];
  if (!t.state.all_accepted()) return;
  const bool crosses = t.is == transfer::kind::striped || t.is == transfer::kind::simulated;
  if (!t.state.is_link_through() && crosses && !pacing_->paces(datacenter_of(t.to))) {
    t.state.link_ended();
    arbiter_.on_left(token);
    arbiter_.on_finished(token);
  }
  if (t.state.is_link_through()) release(token);
}

/// Then the stripes of nodes that are no longer slow are acknowledged, and their senders go on.
void tensor_router::retry(time_ns too_old) {
  retry_queue_.retry(too_old, [this](std::uint32_t token) { on_frame_gone(token); });
  std::erase_if(held_back_, [this](auto& waiting) {
    if (retry_queue_.bytes_to(waiting.first) >= slow_node_bytes) return false;
    for (const auto& f : waiting.second) host_.net->handled(f);
    return true;
  });
}

void tensor_router::on_tick() {
  constexpr time_ns hour = 3'600'000'000'000;
  const auto at = now();
  reassembler_.on_tick(at);
  std::erase_if(crossing_, [&](const auto& c) { return c.second <= at; });
  // After a lease the receiving part has ended or has asked again: an older frame is of no use. The
  // minimum keeps an absurd lease_s within the range of nanoseconds.
  retry(at - std::llround(std::min(cluster_->settings.lease_s, 1e6) * 1e9));
  start_transfers();
  arbiter_.forget(at - hour);
  pacing_->forget(at - hour);
  numbers_.forget(at - 24 * hour);
}

}  // namespace troupe::actors
