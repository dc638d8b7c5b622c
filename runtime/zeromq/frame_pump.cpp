#include "runtime/zeromq/frame_pump.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"
#include "messages/codec/codec.hpp"
#include "runtime/host/log.hpp"

namespace troupe::runtime {

// ---- any thread, under the lock

bool frame_pump::enqueue(address hop, frame f, std::uint32_t lane_number) {
  if (const auto l = table_.route(hop, lane_number)) return enqueue(l, std::move(f));
  host_.add(host_state::no_route);
  return false;
}

bool frame_pump::enqueue(const std::shared_ptr<lane>& l, frame f) {
  const auto bytes = f.size();
  if (!table_.room_for(*l, bytes)) {
    host_.add(host_state::full);
    return false;
  }
  TROUPE_INVARIANT(l->dirty || l->fresh.empty(), "a lane with new frames is listed");
  table_.count_queued(*l, bytes);
  l->fresh.push_back(std::move(f));
  if (!l->dirty) {
    l->dirty = true;
    dirty_.push_back(l);
    host_.wake_if_asleep();
  }
  return true;
}

void frame_pump::grant(std::shared_ptr<inbox> in, std::uint32_t frames) {
  credits_.push_back({std::move(in), frames});
  host_.wake_if_asleep();
}

// ---- sending

void frame_pump::send_queued() {
  {
    const std::lock_guard guard{host_.mutex};
    lanes_to_flush_.swap(dirty_);
    for (auto& l : lanes_to_flush_) {
      TROUPE_INVARIANT(l->dirty && l->taken.empty(),
                       "a lane with new frames is listed once, and its earlier ones were taken");
      l->taken.swap(l->fresh);
      l->dirty = false;
    }
    credits_to_send_.swap(credits_);
  }
  for (auto& l : lanes_to_flush_) {
    for (auto& f : l->taken) l->waiting.push_back(std::move(f));
    l->taken.clear();
    flush(*l);
  }
  lanes_to_flush_.clear();
  send_credits();
  for (const auto& id : broken_) table_.remove(id);
  broken_.clear();
  flush_blocked();
}

/// Writes the frames that wait in a lane, until its credit, ZeroMQ's queue or the frames end. Small
/// frames that wait together leave as one batch, as ZeroMQ's cost per message exceeds theirs.
void frame_pump::flush(lane& l) {
  const auto window_frames = host_.options.window_frames;
  std::size_t frames = 0, bytes = 0;
  while (!l.waiting.empty() && l.open && l.may_send(window_frames, host_.options.window_bytes)) {
    if (!may_write(l)) {
      mark_blocked(l);
      break;
    }
    TROUPE_INVARIANT(l.uncredited.size() < window_frames,
                     "a lane that sends has credit for a frame");
    const auto credit_left = window_frames - l.uncredited.size();
    const auto n = l.batches ? batchable(l.waiting, credit_left) : 1;
    TROUPE_INVARIANT(n >= 1 && n <= l.waiting.size() && n <= credit_left,
                     "a batch has frames that wait, and no more than the peer's credit");
    if (n > 1) {
      auto b = make_batch(l.waiting, n);
      if (!write(l, std::move(b.header), std::move(b.body))) break;
    } else if (!write(l, l.waiting.front())) {
      break;
    }
    for (std::size_t i = 0; i < n; ++i, l.waiting.pop_front()) {
      const auto size = l.waiting.front().size();
      l.sent(size);
      bytes += size;
    }
    frames += n;
  }
  if (frames == 0) return;
  host_.add(host_state::sent, frames);
  const std::lock_guard guard{host_.mutex};
  table_.count_written(l, frames, bytes);
}

// Credit does not bound a peer that grants it and reads nothing; what ZeroMQ holds for it does.
bool frame_pump::may_write(const lane& l) const {
  // A host that respects its credit is always below that.
  const auto max =
      is_client(l.peer) ? host_.options.client_unsent_bytes : 4 * host_.options.window_bytes;
  return l.unsent->now() < max;
}

void frame_pump::mark_blocked(const lane& l) {
  if (!l.routing_id.empty() && std::ranges::find(blocked_, l.routing_id) == blocked_.end())
    blocked_.push_back(l.routing_id);
}

void frame_pump::flush_blocked() {
  if (blocked_.empty()) return;
  for (const auto& id : std::exchange(blocked_, {}))
    if (auto* l = table_.find(id); l != nullptr) flush(*l);
}

bool frame_pump::write(lane& l, const frame& f) {
  const bool all =
      is_client(l.peer);  // a client's bytes are all counted, also those that it copies
  return write(l, outgoing_message(f.header, l.unsent, all),
               outgoing_message(f.body, l.unsent, all));
}

/// False: the connection is gone, or its queue is full.
bool frame_pump::write(lane& l, zmq::message_t header, zmq::message_t body) {
  const auto result = sockets_.write(l, header, body);
  if (result == sockets::written::full) mark_blocked(l);
  if (result == sockets::written::gone) {
    l.open = false;
    if (!l.routing_id.empty()) broken_.push_back(l.routing_id);
  }
  return result == sockets::written::yes;
}

// A lane that was greeted again has a new inbox: credit for frames of the connection before would
// exceed what its peer has counted since.
void frame_pump::send_credits() {
  for (const auto& g : credits_to_send_) {
    const auto l = g.in->over().lock();
    if (!l || l->in != g.in || !l->open) continue;
    write(*l, encode(host_.self, l->peer, credit{g.frames}));
  }
  credits_to_send_.clear();
}

// ---- receiving

void frame_pump::on_frame(lane& l, const envelope& e, frame f) {
  if (!is_valid_source(l, e)) return discard(l, host_state::strangers, f.size());
  if (const auto why = unreadable(l, f)) return refuse_frame(l, *why, f.size());
  deliver(l, std::move(f));
}

// Clients are other people's programs, too, and a request that nobody answers tells their authors
// nothing. Larger frames are refused by the controller, by their size.
std::optional<reason> frame_pump::unreadable(const lane& l, const frame& f) const {
  constexpr std::size_t largest_checked_bytes = std::size_t{1} << 20;
  if (!is_client(l.peer) || f.size() > largest_checked_bytes) return {};
  const auto m = decode(f.header.bytes());
  if (m) return {};
  const auto request = peek_request(f.header.bytes());
  if (!request) return m.error();
  return reason{m.error().code, fmt::format("request {}: {}", *request, m.error().text)};
}

void frame_pump::refuse_frame(lane& l, const reason& why, std::size_t bytes) {
  discard(l, host_state::malformed, bytes);
  // Whatever is wrong with it: other codes are about the connection, which goes on.
  const reason shown{reason::kind::malformed, why.text};
  if (is_client(l.peer)) write(l, encode(host_.self, l.peer, refusal{shown}));
}

void frame_pump::on_batch(lane& l, zmq::message_t body) {
  auto frames = frames_of(std::move(body), l.in);
  if (!frames) return host_.add(host_state::malformed);
  for (auto& f : *frames) {
    const auto e = peek(f.header.bytes());
    if (!e) {
      refuse_frame(l, e.error(), f.size());
    } else if (e->type <= last_session_type) {  // greetings and credit travel alone
      discard(l, host_state::malformed, f.size());
    } else {
      on_frame(l, *e, std::move(f));
    }
  }
}

// A connection may carry only frames of hosts behind it: a node's those of the node, a gateway's
// those of its datacenter, a client's its own; a direct link only tensors of the one node for the
// other.
bool frame_pump::is_valid_source(const lane& l, const envelope& e) const {
  if (l.direct) return e.type == type_id<tensor> && e.from == l.peer && e.to == host_.self;
  return next_hop(host_.cluster(), host_.self, e.from) == l.peer;
}

void frame_pump::deliver(lane& l, frame f) {
  if (!receiver_) return discard(l, host_state::lost, f.size());  // its actors are about to start
  // Credit in flight during a new greeting lets an honest peer exceed its window once; a multiple
  // is a violation.
  if (l.in->uncredited() > 5 * std::uint64_t{host_.options.window_frames})
    return host_.add(host_state::over_credit);
  TROUPE_INVARIANT(l.in, "a frame arrives by a lane that counts its credit");
  l.in->arrived();
  host_.add(host_state::received);
  receiver_(std::move(f));
}

void frame_pump::discard(lane& l, host_state::count why, std::size_t bytes) {
  host_.add(why);
  l.in->arrived();
  const auto frames = l.in->handled(bytes);
  if (frames > 0) write(l, encode(host_.self, l.peer, credit{frames}));
}

void frame_pump::on_credit(lane& l, const zmq::message_t& header) {
  const auto m = decode(bytes_of(header));
  const auto* c = m ? std::get_if<credit>(&m->second) : nullptr;
  if (c == nullptr) return host_.add(host_state::malformed);
  l.credited(c->frames);
  flush(l);
}

// Credit goes back in quarters of the window: rarely enough to cost nothing, and often enough that
// the sender never runs dry.
std::shared_ptr<inbox> frame_pump::fresh_inbox(const std::shared_ptr<lane>& l) const {
  const auto& o = host_.options;
  return std::make_shared<inbox>(l, l->who, std::max<std::uint32_t>(1, o.window_frames / 4),
                                 o.window_bytes / 4);
}

}  // namespace troupe::runtime
