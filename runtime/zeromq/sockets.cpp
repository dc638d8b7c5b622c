#include "runtime/zeromq/sockets.hpp"

#include <sys/random.h>
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "runtime/host/log.hpp"

namespace troupe::runtime {
namespace {

// A part's limit on connections that carry no tensors: the controller's and clients'.
constexpr std::int64_t largest_small_part_bytes = std::int64_t{64} << 20;
// With what encryption adds.
constexpr std::int64_t largest_tensor_part_bytes = std::int64_t{largest_tensor_bytes} + 4096;
// Time for a connection to prove its key.
constexpr int handshake_ms = 10'000;

bool is_ipc(const std::string& endpoint) {
  return endpoint.starts_with("ipc://");
}

/// From other machines.
bool is_reachable(const std::string& endpoint) {
  return endpoint.starts_with("tcp://") && !endpoint.starts_with("tcp://127.") &&
         !endpoint.starts_with("tcp://[::1]");
}

}  // namespace

expected<void> sockets::open() {
  if (::getrandom(&token_, sizeof token_, 0) != sizeof token_)
    return refuse(reason::kind::unavailable, "the kernel has no random numbers");
  if (auto ok = load_key_ring(); !ok) return ok;
  if (auto ok = open_router(); !ok) return ok;
  list_poll_items();
  return {};
}

expected<void> sockets::load_key_ring() {
  const auto& o = host_.options;
  if (o.keys.empty()) return {};
  auto secret_name = o.name;
  if (o.client) secret_name = o.client_key.empty() ? default_client_key(o.keys) : o.client_key;
  if (secret_name.empty())
    return refuse(reason::kind::unknown,
                  "{} has no client.key and not exactly one other user key: say which one to use",
                  o.keys);
  auto ring = load_keys(o.keys, secret_name);
  if (!ring) return refuse(ring.error());
  keys_ = std::move(*ring);
  return {};
}

bool sockets::encrypts(const std::string& endpoint) const {
  return keys_ && !is_ipc(endpoint);
}

// Queue limits are off or far away, as credit bounds what is on the way; ZeroMQ's own limits would
// block or drop without a count.
void sockets::set_up(zmq::socket_t& socket, bool tensors, bool direct) const {
  using namespace zmq;
  socket.set(sockopt::linger, 500);
  socket.set(sockopt::sndhwm, 0);  // credit is the limit
  socket.set(sockopt::rcvhwm, static_cast<int>(4 * host_.options.window_frames));
  socket.set(sockopt::maxmsgsize, tensors ? largest_tensor_part_bytes : largest_small_part_bytes);
  socket.set(sockopt::handshake_ivl, handshake_ms);
  socket.set(sockopt::heartbeat_ivl, 3000);
  // A large tensor delays the answer to a heartbeat: between nodes a minute, 1 GiB at 18 MB/s.
  socket.set(sockopt::heartbeat_timeout, direct ? 60'000 : 10'000);
  socket.set(sockopt::heartbeat_ttl, direct ? 60'000 : 15'000);
  socket.set(sockopt::reconnect_ivl, 100);
  socket.set(sockopt::reconnect_ivl_max, 1000);
}

// Only events that change something here: each costs a message.
std::unique_ptr<socket_monitor> sockets::watch(zmq::socket_t& socket, const std::string& name) {
  int events = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
               ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
  events |= ZMQ_EVENT_DISCONNECTED;
  const bool connects = socket.get(zmq::sockopt::type) == ZMQ_DEALER;
  events |= connects ? ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_CONNECTED |
                           ZMQ_EVENT_CONNECT_DELAYED | ZMQ_EVENT_CONNECT_RETRIED
                     : ZMQ_EVENT_ACCEPTED;
  return std::make_unique<socket_monitor>(context_, socket, name, events);
}

expected<void> sockets::open_router() try {
  if (host_.options.listen.empty()) return {};
  router_.emplace(context_, zmq::socket_type::router);
  set_up(*router_, host_.self != controller_address, host_.is_node());
  // A peer that claims credit and reads nothing: the last bound, beyond that of its credit.
  router_->set(zmq::sockopt::sndhwm, static_cast<int>(5 * host_.options.window_frames));
  router_->set(zmq::sockopt::router_mandatory, true);
  router_->set(zmq::sockopt::router_handover, true);
  if (encrypts(host_.options.listen)) {
    zap_.emplace(context_, *keys_);
    router_->set(zmq::sockopt::zap_domain, "troupe");
    router_->set(zmq::sockopt::curve_server, true);
    router_->set(zmq::sockopt::curve_secretkey, keys_->secret_key);
  }
  router_monitor_ = watch(*router_, "router");
  router_->bind(host_.options.listen);
  host_.endpoint = router_->get(zmq::sockopt::last_endpoint);
  if (!keys_ && is_reachable(host_.endpoint))
    log(log_level::warn, "transport",
        "listening without keys: anyone who reaches this address may run programs on every node",
        {{"at", host_.endpoint}});
  return {};
} catch (const zmq::error_t& e) {
  return refuse(reason::kind::unavailable, "cannot listen on {}: {}", host_.options.listen,
                e.what());
}

// The token keeps others from guessing an id, and with it from taking over its connection. The last
// two bytes number the connections of one host (connection_table.cpp reads them).
std::string sockets::routing_id_of(std::uint32_t connection, std::uint32_t connections) const {
  const std::uint64_t numbers[] = {
      XXH3_64bits(host_.options.name.data(), host_.options.name.size()), token_};
  std::string id = "T";
  id.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
  id += static_cast<char>(connection);
  id += static_cast<char>(connections);
  return id;
}

/// Each socket carries one lane, so that ZeroMQ's queue of one never delays another's.
expected<void> sockets::connect(std::shared_ptr<lane> over, const std::string& endpoint,
                                std::uint32_t connection, std::uint32_t connections) try {
  zmq::socket_t socket{context_, zmq::socket_type::dealer};
  set_up(socket, over->peer != controller_address, over->direct);
  // Nothing is queued for a connection that does not stand: a greeting would arrive too late.
  socket.set(zmq::sockopt::immediate, true);
  socket.set(zmq::sockopt::routing_id, routing_id_of(connection, connections));
  if (encrypts(endpoint)) {
    const auto name = host_name(host_.cluster(), over->peer);
    const auto server = keys_->key_of(name);
    if (server.empty())
      return refuse(reason::kind::unknown, "no public key of {} in {}/authorized", name,
                    host_.options.keys);
    socket.set(zmq::sockopt::curve_serverkey, server);
    socket.set(zmq::sockopt::curve_publickey, keys_->public_key);
    socket.set(zmq::sockopt::curve_secretkey, keys_->secret_key);
  }
  auto d = std::make_unique<dealer>();
  d->socket = std::move(socket);
  d->monitor = watch(d->socket, std::to_string(monitors_++));
  d->socket.connect(endpoint);
  over->dealer = dealers_.size();
  d->over = std::move(over);
  d->endpoint = endpoint;
  dealers_.push_back(std::move(d));
  list_poll_items();
  return {};
} catch (const zmq::error_t& e) {
  return refuse(reason::kind::unavailable, "cannot connect to {}: {}", endpoint, e.what());
}

void sockets::close_if(const std::function<bool(const dealer&)>& unused) {
  if (std::erase_if(dealers_, [&](const auto& d) { return unused(*d); }) == 0) return;
  for (std::size_t i = 0; i < dealers_.size(); ++i) dealers_[i]->over->dealer = i;
  list_poll_items();
}

sockets::written sockets::write(const lane& l, zmq::message_t& header, zmq::message_t& body) {
  using zmq::send_flags;
  const auto more = send_flags::dontwait | send_flags::sndmore;
  const bool routed = !l.routing_id.empty();
  TROUPE_INVARIANT(routed || (l.dealer < dealers_.size() && dealers_[l.dealer]->over.get() == &l),
                   "a lane writes to the socket that was opened for it");
  auto& socket = routed ? *router_ : dealers_[l.dealer]->socket;
  try {
    if (routed && !socket.send(zmq::buffer(l.routing_id), more)) return written::full;
    if (socket.send(header, more)) {
      socket.send(body, send_flags::dontwait);  // ZeroMQ takes all parts of a message, or none
      return written::yes;
    }
  } catch (const zmq::error_t& e) {
    if (e.num() != EHOSTUNREACH) log(log_level::warn, "transport", e.what(), {{"peer", l.peer}});
  }
  return written::gone;
}

// Every descriptor begins as ready: a ZeroMQ descriptor signals only what follows its last use.
void sockets::list_poll_items() {
  items_.clear();
  const auto poll = [this](int fd) { items_.push_back({fd, POLLIN, POLLIN}); };
  const auto poll_socket = [&](zmq::socket_t& s) { poll(s.get(zmq::sockopt::fd)); };
  poll(host_.wake_fd);
  if (zap_) poll_socket(zap_->socket());
  if (router_monitor_) poll(router_monitor_->descriptor());
  for (auto& d : dealers_) poll(d->monitor->descriptor());
  if (router_) poll_socket(*router_);
  for (auto& d : dealers_) poll_socket(d->socket);
}

void sockets::poll(int wait_ms) {
  ::poll(items_.data(), items_.size(), wait_ms);
  if (items_.front().revents == 0) return;
  std::uint64_t ignored = 0;
  [[maybe_unused]] const auto got = ::read(host_.wake_fd, &ignored, sizeof ignored);
}

void sockets::look_at_monitors(bool all, const std::function<void()>& router,
                               const std::function<void(dealer&)>& of_dealer) {
  std::size_t item = 1;
  const auto due = [&] { return items_[item++].revents != 0 || all; };
  if (zap_ && due()) zap_->answer();
  if (router_monitor_ && due()) router();
  for (auto& d : dealers_)
    if (due()) of_dealer(*d);
}

}  // namespace troupe::runtime
