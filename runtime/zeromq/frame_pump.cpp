#include "runtime/zeromq/engine.hpp"

#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "messages/codec/codec.hpp"
#include "runtime/host/log.hpp"

namespace troupe::runtime {
namespace {

// ZeroMQ does not notify when a full queue has room again.
constexpr int retry_blocked_ms = 10;
// Greetings that wait until this host knows its cluster.
constexpr int retry_held_ms = 20;
// Frames read from one socket before queued frames are written again.
constexpr int frames_a_round = 1024;

// Reads the rest of a multipart message: a header, a body, and nothing else.
bool receive_rest(zmq::socket_t& socket, zmq::message_t& header, zmq::message_t& body) {
  if (!socket.recv(header, zmq::recv_flags::dontwait)) return false;
  if (!header.more()) return false;
  if (!socket.recv(body, zmq::recv_flags::dontwait)) return false;
  if (!body.more()) return true;
  for (zmq::message_t excess;;)
    if (!socket.recv(excess, zmq::recv_flags::dontwait) || !excess.more()) return false;
}

/// Which connection carries a lane.
std::size_t choose(std::uint32_t lane, std::size_t connections) {
  return lane == 0 || connections < 2 ? 0 : 1 + (lane - 1) % (connections - 1);
}

}  // namespace

// ---- called from any thread

bool zeromq_transport::engine::send(address to, frame f, std::uint32_t lane) {
  const address me = self_;
  if (to == me || me == first_client_address) {
    add(no_route);
    return false;
  }
  const auto hop = next_hop(*options_.cluster, me, to);
  const std::lock_guard guard{mutex_};
  if (lane == tensor_lane)
    if (const auto direct = direct_lane(to)) return enqueue(direct, std::move(f));
  return enqueue(hop, std::move(f), lane);
}

// Under the lock.
bool zeromq_transport::engine::enqueue(address hop, frame f, std::uint32_t lane) {
  const auto found = peers_.find(hop);
  if (found == peers_.end()) {
    add(no_route);
    return false;
  }
  const auto& lanes = found->second.lanes;
  return enqueue(lanes[choose(lane, lanes.size())], std::move(f));
}

bool zeromq_transport::engine::enqueue(const std::shared_ptr<lane>& l, frame f) {
  const auto bytes = f.size();
  if (!room_for(*l, bytes)) {
    add(full);
    return false;
  }
  l->queued_frames += 1;
  l->queued_bytes += bytes;
  if (is_client(l->peer)) clients_queued_bytes_ += bytes;
  l->fresh.push_back(std::move(f));
  if (!l->dirty) {
    l->dirty = true;
    dirty_.push_back(l);
    if (sleeping_) wake();
  }
  return true;
}

// Under the lock. A frame may exceed the bytes that are left: they only close the queue for the
// next.
bool zeromq_transport::engine::room_for(const lane& l, std::size_t bytes) const {
  // While the peer is not connected, only a window's worth is queued.
  const std::size_t max = l.open ? options_.queue_frames : options_.window_frames;
  if (l.queued_frames >= max) return false;
  if (!is_client(l.peer)) return l.queued_bytes < options_.queue_bytes;
  return l.queued_bytes < options_.client_queue_bytes &&
         clients_queued_bytes_ + clients_unsent_->now() + bytes <= options_.clients_bytes;
}

void zeromq_transport::engine::handled(const frame& f) {
  const auto* in = inbox_of(f);
  if (in == nullptr) return;
  const auto frames = (*in)->handled(f.size());
  if (frames == 0) return;
  const std::lock_guard guard{mutex_};
  credits_.push_back({*in, frames});
  if (sleeping_) wake();
}

// Under the lock: one system call for all frames queued before the thread runs again.
void zeromq_transport::engine::wake() {
  sleeping_ = false;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_fd_, &one, sizeof one);
}

zeromq_counts zeromq_transport::engine::counts() const {
  const auto of = [this](count c) { return counts_[c].load(std::memory_order_relaxed); };
  return {of(sent), of(received),  of(no_route),  of(full),
          of(lost), of(malformed), of(strangers), of(over_credit)};
}

// ---- the thread

void zeromq_transport::engine::start(receiver r) {
  receiver_ = std::move(r);
  // On admission the thread itself comes here, perhaps before `thread_` has its value.
  if (std::exchange(started_, true)) return;
  thread_ = std::thread{[this] { run(); }};
  ::pthread_setname_np(thread_.native_handle(), "troupe/net");
}

zeromq_transport::engine::~engine() {
  {
    const std::lock_guard guard{mutex_};
    stopping_ = true;
    wake();
  }
  if (thread_.joinable()) thread_.join();
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

void zeromq_transport::engine::run() {
  bool more = false, go_on = true;
  while (go_on) {
    go_on = take_queued();
    send_credits();
    drop_broken();
    flush_blocked();
    trim_memory();
    drop_pending();
    update_direct_links();
    poll_monitors();
    greet_when_due();
    more = router_ && drain_router();
    for (auto& d : dealers_) more = drain_dealer(*d) || more;
    more = admit_held() || more;
    if (!more && go_on) wait_for_work();
  }
}

// Rare events are checked when their descriptor is ready, and every 64 rounds while the thread is
// too busy to poll: checking an idle socket is a system call.
void zeromq_transport::engine::poll_monitors() {
  constexpr unsigned rounds_between_looks = 64;
  const bool look = ++rounds_ % rounds_between_looks == 0;
  std::size_t item = 1;
  const auto due = [&] { return look || items_[item].revents != 0; };
  if (zap_) {
    if (due()) zap_->answer();
    ++item;
  }
  if (router_monitor_) {
    if (due()) watch_router();
    ++item;
  }
  for (auto& d : dealers_) {
    if (due()) watch_dealer(*d);
    ++item;
  }
}

// A ZeroMQ descriptor is edge-triggered: it signals only changes since the socket was last used.
// Each socket has just been read until it was empty, so new frames wake the thread.
void zeromq_transport::engine::wait_for_work() {
  using std::chrono::milliseconds;
  auto idle = until_greeting();
  {
    const std::lock_guard guard{mutex_};
    if (!dirty_.empty() || !credits_.empty() || stopping_) return;
    idle = std::min(idle, until_direct_links());
    sleeping_ = true;
  }
  auto wait = std::chrono::ceil<milliseconds>(idle).count();
  if (!blocked_.empty()) wait = std::min<decltype(wait)>(wait, retry_blocked_ms);
  if (trim_due_) wait = std::min<decltype(wait)>(wait, 1000);
  if (!held_.empty()) wait = std::min<decltype(wait)>(wait, retry_held_ms);
  if (!pending_.empty()) wait = std::min<decltype(wait)>(wait, pending_.look_every_ms);
  ::poll(items_.data(), items_.size(), static_cast<int>(wait));
  {
    const std::lock_guard guard{mutex_};
    sleeping_ = false;
  }
  if (items_.front().revents != 0) {
    std::uint64_t ignored = 0;
    [[maybe_unused]] const auto got = ::read(wake_fd_, &ignored, sizeof ignored);
  }
}

// False: it is time to stop.
bool zeromq_transport::engine::take_queued() {
  bool go_on = true;
  {
    const std::lock_guard guard{mutex_};
    go_on = !stopping_;
    lanes_to_flush_.swap(dirty_);
    for (auto& l : lanes_to_flush_) {
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
  return go_on;
}

void zeromq_transport::engine::flush(lane& l) {
  std::size_t frames = 0, bytes = 0;
  while (!l.waiting.empty() && l.open &&
         l.may_send(options_.window_frames, options_.window_bytes)) {
    if (!may_write(l)) {
      mark_blocked(l);
      break;
    }
    const auto credit_left = options_.window_frames - l.uncredited.size();
    const auto n = l.batches ? batchable(l.waiting, credit_left) : 1;
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
  add(sent, frames);
  const std::lock_guard guard{mutex_};
  l.queued_frames -= frames;
  l.queued_bytes -= bytes;
  if (is_client(l.peer)) clients_queued_bytes_ -= bytes;
}

bool zeromq_transport::engine::may_write(const lane& l) const {
  // A host that respects its credit is always below that.
  const auto max = is_client(l.peer) ? options_.client_unsent_bytes : 4 * options_.window_bytes;
  return l.unsent->now() < max;
}

void zeromq_transport::engine::mark_blocked(const lane& l) {
  if (!l.routing_id.empty() &&
      std::find(blocked_.begin(), blocked_.end(), l.routing_id) == blocked_.end())
    blocked_.push_back(l.routing_id);
}

void zeromq_transport::engine::flush_blocked() {
  if (blocked_.empty()) return;
  const auto held = std::exchange(blocked_, {});
  for (const auto& id : held)
    if (const auto found = by_id_.find(id); found != by_id_.end()) flush(*found->second);
}

// Returns memory allocated for peers that have left to the kernel.
void zeromq_transport::engine::trim_memory() {
  if (!trim_due_ || steady::now() - trimmed_ < std::chrono::seconds{1}) return;
  ::malloc_trim(0);
  trimmed_ = steady::now();
  trim_due_ = false;
}

void zeromq_transport::engine::drop_pending() {
  if (pending_.empty() || steady::now() < pending_check_at_) return;
  pending_check_at_ = steady::now() + std::chrono::milliseconds{pending_.look_every_ms};
  const auto cuts = pending_.cut();
  if (cuts == 0) return;
  trim_due_ = true;
  if (const auto lines = refusals_.pass("pending", now_s()); lines > 0)
    log(log_level::warn, "transport", "closed connections that exceeded the limit before greeting",
        {{"at", endpoint_}, {"connections", cuts}, {"times", lines}});
}

bool zeromq_transport::engine::write(lane& l, const frame& f) {
  const bool all = is_client(l.peer);
  return write(l, outgoing_message(f.header, l.unsent, all),
               outgoing_message(f.body, l.unsent, all));
}

// False: the connection is gone, or its queue is full.
bool zeromq_transport::engine::write(lane& l, zmq::message_t header, zmq::message_t body) {
  using zmq::send_flags;
  const auto more = send_flags::dontwait | send_flags::sndmore;
  const bool routed = !l.routing_id.empty();
  auto& socket = routed ? *router_ : dealers_[l.dealer]->socket;
  try {
    if (routed && !socket.send(zmq::buffer(l.routing_id), more)) {
      mark_blocked(l);
      return false;
    }
    if (socket.send(header, more)) {
      socket.send(body, send_flags::dontwait);
      return true;
    }
  } catch (const zmq::error_t& e) {
    if (e.num() != EHOSTUNREACH) log(log_level::warn, "transport", e.what(), {{"peer", l.peer}});
  }
  l.open = false;
  if (routed) broken_.push_back(l.routing_id);
  return false;
}

void zeromq_transport::engine::send_credits() {
  for (const auto& g : credits_to_send_) {
    const auto l = g.in->over().lock();
    if (!l || l->in != g.in || !l->open) continue;
    write(*l, encode(self_, l->peer, credit{g.frames}));
  }
  credits_to_send_.clear();
}

bool zeromq_transport::engine::drain_router() {
  zmq::message_t id, header, body;
  for (int n = 0; n < frames_a_round; ++n) {
    if (!router_->recv(id, zmq::recv_flags::dontwait)) return false;
    if (!id.more() || !receive_rest(*router_, header, body)) {
      add(malformed);
      continue;
    }
    auto* l = lane_of(id);
    if (l != nullptr && !has_its_key(*l, header)) l = nullptr;
    if (l != nullptr && is_batch(header)) {
      on_batch(*l, std::move(body));
      continue;
    }
    const auto e = peek(bytes_of(header));
    if (e && e->type == type_id<hello>) {
      on_hello(id, header);
    } else if (l == nullptr) {
      on_unknown_sender(id, header);
    } else if (!e) {
      discard(*l, malformed, header.size() + body.size());
    } else if (e->type == type_id<credit>) {
      on_credit(*l, header);
    } else if (e->type == type_id<find_node>) {
      on_find_node(*l, header);
    } else if (!is_valid_source(*l, *e)) {
      discard(*l, strangers, header.size() + body.size());
    } else {
      deliver(*l, received_frame(std::move(header), std::move(body), l->in));
    }
  }
  return true;
}

bool zeromq_transport::engine::drain_dealer(dealer& d) {
  zmq::message_t header, body;
  for (int n = 0; n < frames_a_round; ++n) {
    if (!d.socket.recv(header, zmq::recv_flags::dontwait)) return false;
    if (!header.more() || !d.socket.recv(body, zmq::recv_flags::dontwait) || body.more()) {
      for (zmq::message_t rest; body.more() && d.socket.recv(rest, zmq::recv_flags::dontwait);)
        body = std::move(rest);
      add(malformed);
      continue;
    }
    if (d.over->in && is_batch(header)) {
      on_batch(*d.over, std::move(body));
      continue;
    }
    const auto e = peek(bytes_of(header));
    if (!e) {
      add(malformed);
      if (!d.over->open) on_refusal(d, e.error());  // perhaps it speaks another version
    } else if (e->type == type_id<welcome> || e->type == type_id<refusal>) {
      if (const auto m = decode(bytes_of(header))) on_greeting_reply(d, m->second);
    } else if (e->type == type_id<credit>) {
      on_credit(*d.over, header);
    } else if (!d.over->in) {
      add(strangers);
    } else if (e->type == type_id<node_endpoint>) {
      const auto m = decode(bytes_of(header));
      if (m && d.over->peer == upstream_) on_node_endpoint(std::get<node_endpoint>(m->second));
    } else if (!is_valid_source(*d.over, *e)) {
      discard(*d.over, strangers, header.size() + body.size());
    } else {
      deliver(*d.over, received_frame(std::move(header), std::move(body), d.over->in));
    }
  }
  return true;
}

void zeromq_transport::engine::on_batch(lane& l, zmq::message_t body) {
  auto frames = frames_of(std::move(body), l.in);
  if (!frames) return add(malformed);
  for (auto& f : *frames) {
    const auto e = peek(f.header.bytes());
    if (!e || e->type <= last_session_type) {  // greetings and credit travel alone
      discard(l, malformed, f.size());
    } else if (!is_valid_source(l, *e)) {
      discard(l, strangers, f.size());
    } else {
      deliver(l, std::move(f));
    }
  }
}

// A connection may carry only frames of hosts behind it: a node's those of the node, a gateway's
// those of its datacenter, a client's its own; a direct link only tensors of the one node for the
// other.
bool zeromq_transport::engine::is_valid_source(const lane& l, const envelope& e) const {
  if (l.direct) return e.type == type_id<tensor> && e.from == l.peer && e.to == self_;
  return next_hop(*options_.cluster, self_, e.from) == l.peer;
}

void zeromq_transport::engine::deliver(lane& l, frame f) {
  // Credit in flight during a new greeting lets an honest peer exceed its window once; a multiple
  // is a violation.
  if (!receiver_) return discard(l, lost, f.size());  // its actors are about to start
  if (l.in->uncredited() > 5 * std::uint64_t{options_.window_frames}) return add(over_credit);
  l.in->arrived();
  add(received);
  receiver_(std::move(f));
}

// Drops a frame and returns the credit that it took.
void zeromq_transport::engine::discard(lane& l, count why, std::size_t bytes) {
  add(why);
  l.in->arrived();
  const auto frames = l.in->handled(bytes);
  if (frames > 0) write(l, encode(self_, l.peer, credit{frames}));
}

void zeromq_transport::engine::on_credit(lane& l, const zmq::message_t& header) {
  const auto m = decode(bytes_of(header));
  const auto* c = m ? std::get_if<credit>(&m->second) : nullptr;
  if (c == nullptr) return add(malformed);
  l.credited(c->frames);
  flush(l);
}

}  // namespace troupe::runtime
