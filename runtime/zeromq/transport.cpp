#include "runtime/zeromq/transport.hpp"

#include <malloc.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "messages/codec/codec.hpp"
#include "runtime/host/log.hpp"
#include "runtime/zeromq/engine.hpp"

namespace troupe::runtime {
namespace {

// A part's limit on connections that carry no tensors: the controller's and clients'.
constexpr std::int64_t largest_small_part_bytes = std::int64_t{64} << 20;
// With what encryption adds.
constexpr std::int64_t largest_tensor_part_bytes = std::int64_t{largest_tensor_bytes} + 4096;
// Whoever connects has this long to prove its key.
constexpr int handshake_ms = 10'000;

// Large frames come and go: without this, malloc gives each one's pages back to the kernel and asks
// for them again, at a third of the speed for 1 MB bodies. What was used once stays with the
// process. glibc maps what is larger than its largest threshold, 32 MB, anew each time, unless it
// may map nothing at all: that is for processes that carry tensors.
void keep_memory(bool tensors) {
  static std::once_flag all, those_with_tensors;
  std::call_once(all, [] {
    ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
    ::mallopt(M_TRIM_THRESHOLD, 512 << 20);
  });
  if (tensors) std::call_once(those_with_tensors, [] { ::mallopt(M_MMAP_MAX, 0); });
}

/// A client's may be empty.
zeromq_options with_cluster(zeromq_options o) {
  if (!o.cluster) o.cluster = cluster{};
  return o;
}

bool is_ipc(const std::string& endpoint) {
  return endpoint.starts_with("ipc://");
}

/// From other machines.
bool is_reachable(const std::string& endpoint) {
  return endpoint.starts_with("tcp://") && !endpoint.starts_with("tcp://127.") &&
         !endpoint.starts_with("tcp://[::1]");
}

}  // namespace

// ---- opening

zeromq_transport::engine::engine(zeromq_options options)
    : options_{with_cluster(std::move(options))} {}

expected<void> zeromq_transport::engine::open() {
  if (::getrandom(&token_, sizeof token_, 0) != sizeof token_)
    return refuse(reason::kind::unavailable, "the kernel has no random numbers");
  wake_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd_ < 0)
    return refuse(reason::kind::unavailable, fmt::format("no eventfd: {}", std::strerror(errno)));
  if (auto ok = find_self(); !ok) return ok;
  keep_memory(!options_.client && self_ != controller_address);
  if (!options_.keys.empty()) {
    auto secret_name = options_.name;
    if (options_.client)
      secret_name =
          options_.client_key.empty() ? default_client_key(options_.keys) : options_.client_key;
    if (secret_name.empty())
      return refuse(
          reason::kind::unknown,
          fmt::format(
              "{} has no client.key and not exactly one other user key: say which one to use",
              options_.keys));
    auto ring = load_keys(options_.keys, secret_name);
    if (!ring) return refuse(ring.error());
    keys_ = std::move(*ring);
  }
  if (auto ok = open_router(); !ok) return ok;
  if (auto ok = open_dealers(); !ok) return ok;
  list_poll_items();
  return {};
}

void zeromq_transport::engine::list_poll_items() {
  items_.clear();
  const auto poll = [this](int fd) { items_.push_back({fd, POLLIN, POLLIN}); };
  const auto poll_socket = [&](zmq::socket_t& s) { poll(s.get(zmq::sockopt::fd)); };
  poll(wake_fd_);
  if (zap_) poll_socket(zap_->socket());
  if (router_monitor_) poll(router_monitor_->descriptor());
  for (auto& d : dealers_) poll(d->monitor->descriptor());
  if (router_) poll_socket(*router_);
  for (auto& d : dealers_) poll_socket(d->socket);
}

expected<void> zeromq_transport::engine::find_self() {
  if (options_.client) return {};
  const auto& c = *options_.cluster;
  const auto found = find_host(c, options_.name);
  if (!found)
    return refuse(reason::kind::unknown,
                  fmt::format("no host '{}' in cluster {}", options_.name, c.name));
  entry_ = entry_of(c, *found);
  self_ = *found;
  if (*found != controller_address) upstream_ = next_hop(c, *found, controller_address);
  return {};
}

bool zeromq_transport::engine::encrypts(const std::string& endpoint) const {
  return keys_ && !is_ipc(endpoint);
}

void zeromq_transport::engine::set_up(zmq::socket_t& socket, bool tensors, bool direct) const {
  using namespace zmq;
  socket.set(sockopt::linger, 500);
  socket.set(sockopt::sndhwm, 0);  // credit is the limit
  socket.set(sockopt::rcvhwm, static_cast<int>(4 * options_.window_frames));
  socket.set(sockopt::maxmsgsize, tensors ? largest_tensor_part_bytes : largest_small_part_bytes);
  socket.set(sockopt::handshake_ivl, handshake_ms);
  socket.set(sockopt::heartbeat_ivl, 3000);
  // A large tensor delays the answer to a heartbeat: between nodes a minute, 1 GiB at 18 MB/s.
  socket.set(sockopt::heartbeat_timeout, direct ? 60'000 : 10'000);
  socket.set(sockopt::heartbeat_ttl, direct ? 60'000 : 15'000);
  socket.set(sockopt::reconnect_ivl, 100);
  socket.set(sockopt::reconnect_ivl_max, 1000);
}

std::unique_ptr<socket_monitor> zeromq_transport::engine::watch(zmq::socket_t& socket,
                                                                const std::string& name) {
  int events = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
               ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
  events |= ZMQ_EVENT_DISCONNECTED;
  const bool connects = socket.get(zmq::sockopt::type) == ZMQ_DEALER;
  events |= connects ? ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_CONNECTED |
                           ZMQ_EVENT_CONNECT_DELAYED | ZMQ_EVENT_CONNECT_RETRIED
                     : ZMQ_EVENT_ACCEPTED;
  return std::make_unique<socket_monitor>(context_, socket, name, events);
}

expected<void> zeromq_transport::engine::open_router() try {
  if (options_.listen.empty()) return {};
  router_.emplace(context_, zmq::socket_type::router);
  set_up(*router_, self_ != controller_address, is_node(*options_.cluster, self_));
  // A peer that claims credit and reads nothing: the last bound, beyond that of its credit.
  router_->set(zmq::sockopt::sndhwm, static_cast<int>(5 * options_.window_frames));
  router_->set(zmq::sockopt::router_mandatory, true);
  router_->set(zmq::sockopt::router_handover, true);
  if (encrypts(options_.listen)) {
    zap_.emplace(context_, *keys_);
    router_->set(zmq::sockopt::zap_domain, "troupe");
    router_->set(zmq::sockopt::curve_server, true);
    router_->set(zmq::sockopt::curve_secretkey, keys_->secret_key);
  }
  router_monitor_ = watch(*router_, "router");
  router_->bind(options_.listen);
  endpoint_ = router_->get(zmq::sockopt::last_endpoint);
  if (!keys_ && is_reachable(endpoint_))
    log(log_level::warn, "transport",
        "listening without keys: anyone who reaches this address may run programs on every node",
        {{"at", endpoint_}});
  return {};
} catch (const zmq::error_t& e) {
  return refuse(reason::kind::unavailable,
                fmt::format("cannot listen on {}: {}", options_.listen, e.what()));
}

std::string zeromq_transport::engine::routing_id_of(std::uint32_t connection,
                                                    std::uint32_t connections) const {
  const std::uint64_t numbers[] = {XXH3_64bits(options_.name.data(), options_.name.size()), token_};
  std::string id = "T";
  id.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
  id += static_cast<char>(connection);
  id += static_cast<char>(connections);
  return id;
}

expected<void> zeromq_transport::engine::open_dealers() {
  if (!options_.upstream.empty())
    if (auto ok = open_link({upstream_, options_.upstream, options_.connections}); !ok) return ok;
  for (const auto& l : options_.links) {
    if (!is_gateway(*options_.cluster, self_) || !is_gateway(*options_.cluster, l.to) ||
        !greets(self_, l.to))
      return refuse(reason::kind::invalid, fmt::format("{} does not connect to {}", options_.name,
                                                       host_name(*options_.cluster, l.to)));
    if (auto ok = open_link(l); !ok) return ok;
  }
  return {};
}

expected<void> zeromq_transport::engine::open_link(const zeromq_link& l) {
  if (l.connections < 1 || l.connections > max_connections)
    return refuse(reason::kind::invalid,
                  fmt::format("{} connections: expected 1 to {}", l.connections, max_connections));
  const std::lock_guard guard{mutex_};
  auto& p = peers_[l.to];
  for (std::uint32_t n = 0; n < l.connections; ++n) {
    auto over = std::make_shared<lane>();
    over->peer = l.to;
    over->dealer = dealers_.size();
    over->batches = true;
    auto made = make_dealer(over, l.endpoint, n, l.connections);
    if (!made) return refuse(made.error());
    p.lanes.push_back(std::move(over));
    dealers_.push_back(std::move(*made));
  }
  return {};
}

expected<void> zeromq_transport::engine::add_link(const zeromq_link& l) {
  auto ok = open_link(l);
  list_poll_items();
  return ok;
}

/// A socket that connects, over which one lane goes.
auto zeromq_transport::engine::make_dealer(std::shared_ptr<lane> over, const std::string& endpoint,
                                           std::uint32_t connection, std::uint32_t connections)
    -> expected<std::unique_ptr<dealer>> try {
  zmq::socket_t socket{context_, zmq::socket_type::dealer};
  set_up(socket, over->peer != controller_address, over->direct);
  socket.set(zmq::sockopt::immediate, true);
  socket.set(zmq::sockopt::routing_id, routing_id_of(connection, connections));
  if (encrypts(endpoint)) {
    const auto name = host_name(*options_.cluster, over->peer);
    const auto server = keys_->key_of(name);
    if (server.empty())
      return refuse(reason::kind::unknown,
                    fmt::format("no public key of {} in {}/authorized", name, options_.keys));
    socket.set(zmq::sockopt::curve_serverkey, server);
    socket.set(zmq::sockopt::curve_publickey, keys_->public_key);
    socket.set(zmq::sockopt::curve_secretkey, keys_->secret_key);
  }
  auto d = std::make_unique<dealer>();
  d->socket = std::move(socket);
  d->monitor = watch(d->socket, std::to_string(monitors_++));
  d->socket.connect(endpoint);
  d->over = std::move(over);
  d->endpoint = endpoint;
  return d;
} catch (const zmq::error_t& e) {
  return refuse(reason::kind::unavailable,
                fmt::format("cannot connect to {}: {}", endpoint, e.what()));
}

// ---- what others ask

bool zeromq_transport::engine::greeted() const {
  const std::lock_guard guard{mutex_};
  return upstream_open();
}

// Under the lock.
bool zeromq_transport::engine::upstream_open() const {
  if (options_.upstream.empty()) return true;
  const auto upstream = peers_.find(upstream_);
  return upstream != peers_.end() &&
         std::all_of(upstream->second.lanes.begin(), upstream->second.lanes.end(),
                     [](const auto& l) { return l->open.load(); });
}

std::optional<reason> zeromq_transport::engine::refused() const {
  const std::lock_guard guard{mutex_};
  return refused_;
}

expected<void> zeromq_transport::engine::wait_until_greeted(double seconds) const {
  std::unique_lock guard{mutex_};
  changed_.wait_for(guard, std::chrono::duration<double>(seconds),
                    [this] { return upstream_open() || refused_; });
  if (upstream_open()) return {};
  if (refused_) return refuse(*refused_);
  return refuse(reason::kind::unavailable,
                fmt::format("no answer from {} at {} within {:.1f} s{}",
                            host_name(*options_.cluster, upstream_), options_.upstream, seconds,
                            trouble_.empty() ? "" : " (" + trouble_ + ")"));
}

// ---- the public face

zeromq_transport::zeromq_transport(std::unique_ptr<engine> e) : engine_{std::move(e)} {}
zeromq_transport::~zeromq_transport() = default;

expected<std::shared_ptr<zeromq_transport>> zeromq_transport::open(zeromq_options options) {
  auto e = std::make_unique<engine>(std::move(options));
  if (auto ok = e->open(); !ok) return refuse(ok.error());
  return std::shared_ptr<zeromq_transport>{new zeromq_transport{std::move(e)}};
}

address zeromq_transport::self() const {
  return engine_->self();
}
bool zeromq_transport::send(address to, frame f, std::uint32_t lane) {
  return engine_->send(to, std::move(f), lane);
}
void zeromq_transport::listen(receiver r) {
  engine_->start(std::move(r));
}
void zeromq_transport::begin() {
  engine_->start({});
}
expected<void> zeromq_transport::add_link(const zeromq_link& l) {
  return engine_->add_link(l);
}
caller zeromq_transport::caller_of(const frame& f) const {
  const auto* in = inbox_of(f);
  return in == nullptr ? caller{"", false} : (*in)->from();
}
void zeromq_transport::handled(const frame& f) {
  engine_->handled(f);
}
bool zeromq_transport::greeted() const {
  return engine_->greeted();
}
expected<void> zeromq_transport::wait_until_greeted(double s) const {
  return engine_->wait_until_greeted(s);
}
std::optional<reason> zeromq_transport::refused() const {
  return engine_->refused();
}
std::string zeromq_transport::endpoint() const {
  return engine_->endpoint();
}
zeromq_counts zeromq_transport::counts() const {
  return engine_->counts();
}

}  // namespace troupe::runtime
