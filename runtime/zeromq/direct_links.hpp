#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/zeromq/connection_table.hpp"
#include "runtime/zeromq/frame_pump.hpp"
#include "runtime/zeromq/sockets.hpp"

namespace troupe::runtime {

/// The endpoint at which others reach a node that listens at `endpoint`: if that names no address,
/// the one from which the node's connection came. Empty: it cannot be used.
std::string reachable_endpoint(const std::string& endpoint, std::string_view peer_address);

/// Connections for tensors between nodes of one datacenter. A node that has a tensor for another
/// asks its gateway for the other's endpoint, connects there, and sends it tensors and nothing
/// else; the other direction has a connection of its own.
///
///            first tensor              node_endpoint               welcome
///   (none) ----------------> finding ----------------> greeting ------------> open
///                              ^  |  too late              |  refused,          |
///                              |  v                        |  or too late       | disconnected
///                  next tensor |  unusable <---------------+--------------------+
///              after a while   +-----+
///
/// The first tensors wait for the connection. If it fails they go through the gateway, and so do
/// all others until it is open; no tensor waits for it a second time.
///
/// A class of its own because it is an optimization on top of the transport: every frame also has
/// a route without it, and a host without nodes beside it never uses it. Invariants: a link in
/// `greeting` or `open` has a socket, and only those two do; an unusable link has no frames.
class direct_links {
 public:
  using steady = host_state::steady;

  direct_links(host_state& host, connection_table& table, sockets& all, frame_pump& pump)
      : host_{host}, table_{table}, sockets_{all}, pump_{pump} {}

  // ---- under the lock

  /// The connection for a tensor to that host; null: it goes through the gateway.
  std::shared_ptr<lane> lane_to(address to);
  /// How long the thread may sleep as far as these links go.
  steady::duration until_update() const;

  // ---- the thread

  /// Carries the links' states forward; closes the sockets of those that are unusable.
  void update();
  /// The gateway's answer: where a node listens.
  void on_node_endpoint(const node_endpoint& m);
  void on_welcome(const lane& l);
  void on_failure(const lane& l, std::string_view why);

  // At a gateway.
  /// A node of this gateway's has greeted and announced where it listens.
  void remember_endpoint(address who, const hello& h, std::string_view peer_address);
  void on_find_node(lane& l, const zmq::message_t& header);

 private:
  struct link {
    enum class state : std::uint8_t { finding, greeting, open, unusable };
    state is = state::finding;
    bool waits = true;            // tensors are queued until it is open: it has never failed
    steady::time_point until{};   // finding, greeting: timeout; unusable: the next attempt
    steady::time_point ask_at{};  // finding: the next query to the gateway
    steady::duration pause{};     // after a failure; doubles with each
    std::string endpoint;         // finding: the gateway's answer
    std::shared_ptr<lane> over{};
  };

  link* link_of(const lane& l);
  lane* upstream_lane();
  void connect(link& d);
  void mark_unusable(link& d, std::string_view why);
  void close_unused();

  host_state& host_;
  connection_table& table_;
  sockets& sockets_;
  frame_pump& pump_;
  std::map<address, link> links_;  // under the lock, as the next
  steady::time_point update_at_ = steady::time_point::max();
};

}  // namespace troupe::runtime
