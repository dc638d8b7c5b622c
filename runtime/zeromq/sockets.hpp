#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <zmq.hpp>

#include "runtime/zeromq/host_state.hpp"
#include "runtime/zeromq/keys.hpp"
#include "runtime/zeromq/lane.hpp"
#include "runtime/zeromq/socket_monitor.hpp"
#include "runtime/zeromq/zap.hpp"

namespace troupe::runtime {

/// A socket to the upstream, another gateway or another node, and ZeroMQ's events about it.
struct dealer {
  zmq::socket_t socket;
  std::unique_ptr<socket_monitor> monitor;
  std::shared_ptr<lane> over;
  std::string endpoint;
  host_state::steady::time_point next_hello{};
  host_state::steady::duration backoff{};  // after a refusal; doubles with each
  // When to connect again ourselves: ZeroMQ stops reconnecting after a protocol error, which
  // includes a refused key. max(): ZeroMQ reconnects.
  host_state::steady::time_point reconnect_at = host_state::steady::time_point::max();
  bool refused = false;  // permanently
};

/// The ZeroMQ sockets of a host: at most one ROUTER, which listens, and a DEALER for each
/// connection that the host opens.
///
/// A class of its own because it alone sets ZeroMQ's options and keys and knows in which order
/// descriptors are polled; the others see lanes. Used by the engine's thread only, and before that
/// starts by the thread that opens. Invariant: `lane::dealer` of a dealer's lane is its index.
class sockets {
 public:
  explicit sockets(host_state& host) : host_{host} {}

  /// Loads the keys, binds the ROUTER socket, connects to the upstream and to the options' links.
  expected<void> open();
  /// Connects `over` to an endpoint, as one of `connections` to that peer.
  expected<void> connect(std::shared_ptr<lane> over, const std::string& endpoint,
                         std::uint32_t connection = 0, std::uint32_t connections = 1);
  /// Closes those that `unused` selects, and numbers the others anew.
  void close_if(const std::function<bool(const dealer&)>& unused);

  std::vector<std::unique_ptr<dealer>>& dealers() { return dealers_; }
  zmq::socket_t* router() { return router_ ? &*router_ : nullptr; }
  socket_monitor* router_monitor() { return router_monitor_.get(); }
  const std::optional<key_ring>& keys() const { return keys_; }
  /// Are connections to or from this endpoint encrypted? Local sockets never are.
  bool encrypts(const std::string& endpoint) const;

  enum class written { yes, full, gone };
  /// Hands a frame to ZeroMQ, which may drop it if the connection breaks. full: try again later.
  written write(const lane& l, zmq::message_t& header, zmq::message_t& body);

  /// Waits for any socket or the host's wake_fd.
  void poll(int wait_ms);
  /// Answers ZAP's questions about keys, and calls these where the last poll() found events; `all`:
  /// everywhere. Reading an idle monitor is a system call.
  void look_at_monitors(bool all, const std::function<void()>& router,
                        const std::function<void(dealer&)>& of_dealer);

 private:
  expected<void> load_key_ring();
  expected<void> open_router();
  void set_up(zmq::socket_t& socket, bool tensors, bool direct) const;
  std::unique_ptr<socket_monitor> watch(zmq::socket_t& socket, const std::string& name);
  std::string routing_id_of(std::uint32_t connection, std::uint32_t connections) const;
  void list_poll_items();

  host_state& host_;
  std::uint64_t token_ = 0;  // secret: part of routing ids, which others could otherwise guess
  std::optional<key_ring> keys_;
  // Members end in reverse order: monitors before their sockets, sockets before the context.
  zmq::context_t context_;
  std::optional<zap_handler> zap_;
  std::optional<zmq::socket_t> router_;
  std::unique_ptr<socket_monitor> router_monitor_;
  std::vector<std::unique_ptr<dealer>> dealers_;
  std::vector<pollfd> items_;  // wake_fd, ZAP, monitors (look_at_monitors' order), then sockets
  unsigned monitors_ = 0;      // created so far
};

}  // namespace troupe::runtime
