#include "runtime/zeromq/engine.hpp"

#include <malloc.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "messages/base/refuse.hpp"
#include "messages/codec/codec.hpp"
#include "runtime/host/freed_memory.hpp"

namespace troupe::runtime {
namespace {

// ZeroMQ does not notify when a full queue has room again.
constexpr int retry_blocked_ms = 10;
// Greetings that wait until this host knows its cluster.
constexpr int retry_held_ms = 20;
// Frames read from one socket before queued frames are written again.
constexpr int frames_a_round = 1024;

// Large frames come and go: without this, malloc gives each one's pages back to the kernel and asks
// for them again, at a third of the speed for 1 MB bodies. What was used once stays with the
// process. glibc maps what is larger than its largest threshold, 32 MB, anew each time, unless it
// may map nothing at all: that is for processes that carry tensors.
void keep_memory(bool tensors) {
  static std::once_flag all, those_with_tensors;
  std::call_once(all, [] {
    ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
    ::mallopt(M_TRIM_THRESHOLD, 512 << 20);
    keep_freed_memory();
  });
  if (tensors) std::call_once(those_with_tensors, [] { ::mallopt(M_MMAP_MAX, 0); });
}

// Reads the rest of a multipart message: a header, a body, and nothing else.
bool receive_rest(zmq::socket_t& socket, zmq::message_t& header, zmq::message_t& body) {
  if (!socket.recv(header, zmq::recv_flags::dontwait)) return false;
  if (!header.more()) return false;
  if (!socket.recv(body, zmq::recv_flags::dontwait)) return false;
  if (!body.more()) return true;
  for (zmq::message_t excess;;)
    if (!socket.recv(excess, zmq::recv_flags::dontwait) || !excess.more()) return false;
}

}  // namespace

// ---- opening

expected<std::shared_ptr<zeromq_transport>> zeromq_transport::open(zeromq_options options) {
  const auto e = std::make_shared<zeromq_engine>(std::move(options));
  if (auto ok = e->connect(); !ok) return refuse(ok.error());
  return e;
}

expected<void> zeromq_engine::connect() {
  host_.wake_fd = descriptor{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  if (host_.wake_fd < 0)
    return refuse(reason::kind::unavailable, "no eventfd: {}", std::strerror(errno));
  if (auto ok = find_self(); !ok) return ok;
  keep_memory(!host_.options.client && host_.self != controller_address);
  if (auto ok = sockets_.open(); !ok) return ok;
  const auto& o = host_.options;
  if (!o.upstream.empty())
    if (auto ok = add_link({host_.upstream, o.upstream, o.connections}); !ok) return ok;
  for (const auto& l : o.links) {
    if (!host_.is_gateway() || !is_gateway(host_.cluster(), l.to) || !greets(host_.self, l.to))
      return refuse(reason::kind::invalid, "{} does not connect to {}", o.name,
                    host_name(host_.cluster(), l.to));
    if (auto ok = add_link(l); !ok) return ok;
  }
  return {};
}

// By its own cluster file; the upstream's welcome may correct the number.
expected<void> zeromq_engine::find_self() {
  if (host_.options.client) return {};
  const auto& c = host_.cluster();
  const auto found = find_host(c, host_.options.name);
  if (!found)
    return refuse(reason::kind::unknown, "no host '{}' in cluster {}", host_.options.name, c.name);
  host_.entry = entry_of(c, *found);
  host_.self = *found;
  if (*found != controller_address) host_.upstream = next_hop(c, *found, controller_address);
  return {};
}

expected<void> zeromq_engine::add_link(const zeromq_link& l) {
  if (l.connections < 1 || l.connections > max_connections)
    return refuse(reason::kind::invalid, "{} connections: expected 1 to {}", l.connections,
                  max_connections);
  const std::lock_guard guard{host_.mutex};
  for (std::uint32_t n = 0; n < l.connections; ++n) {
    auto over = std::make_shared<lane>();
    over->peer = l.to;
    over->batches = true;
    if (auto ok = sockets_.connect(over, l.endpoint, n, l.connections); !ok) return ok;
    table_.add_outgoing(std::move(over));
  }
  return {};
}

// ---- called from any thread

bool zeromq_engine::send(address to, frame f, std::uint32_t lane) {
  const address me = host_.self;
  if (to == me || me == first_client_address) {
    host_.add(host_state::no_route);
    return false;
  }
  const auto hop = next_hop(host_.cluster(), me, to);
  const std::lock_guard guard{host_.mutex};
  if (lane == tensor_lane)
    if (const auto direct = links_.lane_to(to)) return pump_.enqueue(direct, std::move(f));
  return pump_.enqueue(hop, std::move(f), lane);
}

caller zeromq_engine::caller_of(const frame& f) const {
  const auto* in = inbox_of(f);
  return in == nullptr ? caller{"", false} : (*in)->from();
}

void zeromq_engine::handled(const frame& f) {
  const auto* in = inbox_of(f);
  if (in == nullptr) return;
  const auto frames = (*in)->handled(f.size());
  if (frames == 0) return;
  const std::lock_guard guard{host_.mutex};
  pump_.grant(*in, frames);
}

bool zeromq_engine::greeted() const {
  const std::lock_guard guard{host_.mutex};
  return greeter_.upstream_open();
}

zeromq_counts zeromq_engine::counts() const {
  using h = host_state;
  const auto of = [this](h::count c) { return host_.counts[c].load(std::memory_order_relaxed); };
  return {of(h::sent), of(h::received),  of(h::no_route),  of(h::full),
          of(h::lost), of(h::malformed), of(h::strangers), of(h::over_credit)};
}

// ---- the thread

void zeromq_engine::listen(receiver r) {
  pump_.receive_with(std::move(r));
  // On admission the thread itself comes here, perhaps before `thread_` has its value.
  if (std::exchange(started_, true)) return;
  thread_ = std::thread{[this] { run(); }};
  ::pthread_setname_np(thread_.native_handle(), "troupe/net");
}

zeromq_engine::~zeromq_engine() {
  {
    const std::lock_guard guard{host_.mutex};
    stopping_ = true;
    host_.sleeping = true;  // wakes it in any case
    host_.wake_if_asleep();
  }
  if (thread_.joinable()) thread_.join();
}

// The last round begins after stopping_ is set, so that it sends all that was queued before.
void zeromq_engine::run() {
  bool more = false, go_on = true;
  while (go_on) {
    go_on = !is_stopping();
    pump_.send_queued();
    trim_memory();
    greeter_.cut_pending();
    links_.update();
    look_at_monitors();
    greeter_.greet_when_due();
    more = drain_router();
    for (auto& d : sockets_.dealers()) more = drain_dealer(*d) || more;
    more = greeter_.admit_held() || more;
    if (!more && go_on) wait_for_work();
  }
}

bool zeromq_engine::is_stopping() const {
  const std::lock_guard guard{host_.mutex};
  return stopping_;
}

// Rare events are checked when their descriptor is ready, and every 64 rounds while the thread is
// too busy to poll: checking an idle socket is a system call.
void zeromq_engine::look_at_monitors() {
  constexpr unsigned rounds_between_looks = 64;
  sockets_.look_at_monitors(
      ++rounds_ % rounds_between_looks == 0, [this] { greeter_.watch_router(); },
      [this](dealer& d) { greeter_.watch_dealer(d); });
}

// A ZeroMQ descriptor is edge-triggered: it signals only changes since the socket was last used.
// Each socket has just been read until it was empty, so new frames wake the thread.
void zeromq_engine::wait_for_work() {
  using std::chrono::milliseconds;
  auto idle = greeter_.until_greeting();
  {
    const std::lock_guard guard{host_.mutex};
    if (pump_.has_work() || stopping_) return;
    idle = std::min(idle, links_.until_update());
    host_.sleeping = true;
  }
  auto wait = std::chrono::ceil<milliseconds>(idle).count();
  const auto at_most = [&wait](bool due, int ms) {
    if (due) wait = std::min<decltype(wait)>(wait, ms);
  };
  at_most(pump_.has_blocked(), retry_blocked_ms);
  at_most(host_.trim_due, 1000);
  at_most(greeter_.has_held(), retry_held_ms);
  at_most(greeter_.has_pending(), pending_connections::look_every_ms);
  sockets_.poll(static_cast<int>(wait));
  const std::lock_guard guard{host_.mutex};
  host_.sleeping = false;
}

// Returns memory allocated for peers that have left to the kernel.
void zeromq_engine::trim_memory() {
  if (!host_.trim_due || steady::now() - trimmed_ < std::chrono::seconds{1}) return;
  return_freed_memory();
  trimmed_ = steady::now();
  host_.trim_due = false;
}

// At most a thousand frames of one socket, then the round goes on: a busy peer must not delay the
// frames, credits and greetings of the others.
bool zeromq_engine::drain_router() {
  auto* router = sockets_.router();
  if (router == nullptr) return false;
  zmq::message_t id, header, body;
  for (int n = 0; n < frames_a_round; ++n) {
    if (!router->recv(id, zmq::recv_flags::dontwait)) return false;
    if (!id.more() || !receive_rest(*router, header, body)) {
      host_.add(host_state::malformed);
      continue;
    }
    auto* l = table_.find(id);
    if (l != nullptr && !greeter_.has_its_key(*l, header)) l = nullptr;
    if (l != nullptr && is_batch(header)) {
      pump_.on_batch(*l, std::move(body));
      continue;
    }
    const auto e = peek(bytes_of(header));
    if (e && e->type == type_id<hello>) {
      greeter_.on_hello(id, header);
    } else if (l == nullptr) {
      greeter_.on_unknown_sender(id, header);
    } else if (!e) {
      pump_.refuse_frame(*l, e.error(), header.size() + body.size());
    } else if (e->type == type_id<credit>) {
      pump_.on_credit(*l, header);
    } else if (e->type == type_id<find_node>) {
      links_.on_find_node(*l, header);
    } else {
      pump_.on_frame(*l, *e, received_frame(std::move(header), std::move(body), l->in));
    }
  }
  return true;
}

// Answers to a greeting come over the socket that greeted, and only those are accepted before it is
// welcomed.
bool zeromq_engine::drain_dealer(dealer& d) {
  zmq::message_t header, body;
  for (int n = 0; n < frames_a_round; ++n) {
    if (!d.socket.recv(header, zmq::recv_flags::dontwait)) return false;
    if (!header.more() || !d.socket.recv(body, zmq::recv_flags::dontwait) || body.more()) {
      for (zmq::message_t rest; body.more() && d.socket.recv(rest, zmq::recv_flags::dontwait);)
        body = std::move(rest);
      host_.add(host_state::malformed);
      continue;
    }
    auto& l = *d.over;
    if (l.in && is_batch(header)) {
      pump_.on_batch(l, std::move(body));
      continue;
    }
    const auto e = peek(bytes_of(header));
    if (!e) {
      host_.add(host_state::malformed);
      if (!l.open) greeter_.on_refusal(d, e.error());  // perhaps the peer has another version
    } else if (e->type == type_id<welcome> || e->type == type_id<refusal>) {
      if (const auto m = decode(bytes_of(header))) greeter_.on_reply(d, m->second);
    } else if (e->type == type_id<credit>) {
      pump_.on_credit(l, header);
    } else if (!l.in) {
      host_.add(host_state::strangers);
    } else if (e->type == type_id<node_endpoint>) {
      const auto m = decode(bytes_of(header));
      if (m && l.peer == host_.upstream)
        links_.on_node_endpoint(std::get<node_endpoint>(m->second));
    } else {
      pump_.on_frame(l, *e, received_frame(std::move(header), std::move(body), l.in));
    }
  }
  return true;
}

}  // namespace troupe::runtime
