#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "messages/wire/frame.hpp"
#include "messages/wire/message.hpp"

namespace troupe::runtime {

/// The first lane for large frames. From a node to another of its datacenter it leads directly
/// there, as soon as and as long as the two can connect; else through the gateway.
inline constexpr std::uint32_t tensor_lane = 1;

/// Between a node and its gateway: blocks of prefills, which therefore never queue before tensors.
/// They always go through the gateway, and not beyond it.
inline constexpr std::uint32_t prefill_lane = 2;

/// From a node: through the gateway in any case, for tensors that the direct connection may have
/// lost. Of three connections it shares the one of tensor_lane.
inline constexpr std::uint32_t relayed_tensor_lane = 3;

/// Connections from a node to its gateway: small frames, tensors, blocks of prefills.
inline constexpr std::uint32_t node_connections = 3;

/// Maximum size of a tensor: the largest frame part that a tensor connection accepts. Gateways
/// stripe tensors between datacenters, but not inside one.
inline constexpr std::uint64_t largest_tensor_bytes = std::uint64_t{1} << 30;

/// Maximum size of a prefill_block's body; gateways drop larger ones.
inline constexpr std::uint64_t largest_block_bytes = std::uint64_t{16} << 20;

inline std::uint32_t lane_of_type(std::uint16_t type) {
  return type == type_id<tensor> ? tensor_lane : type == type_id<prefill_block> ? prefill_lane : 0;
}
inline std::uint32_t lane_of(const message& m) {
  return std::visit([]<class T>(const T&) { return lane_of_type(type_id<T>); }, m);
}

/// Name of a peer without a key, which is possible only without keys or over a local socket.
inline constexpr const char* local_caller = "local";

/// The authenticated peer of a connection.
struct caller {
  std::string name = local_caller;  // of the key
  bool is_operator = true;          // may act on everybody's jobs
};

/// One host's access to the network. Simulated or ZeroMQ; both encode, both can lose.
class transport {
 public:
  using receiver = std::function<void(frame)>;

  virtual ~transport() = default;

  /// This host's address. A client learns it from the controller's welcome.
  virtual address self() const = 0;

  /// Sends a frame to the next hop towards `to`. Never blocks. False: too much is waiting for
  /// credit, or there is no route; the frame is dropped.
  ///
  /// `lane` selects one of the connections to that host, of which there may be fewer. Frames of one
  /// lane stay in order. Lane 0 shares its connection with another lane only if there is just one,
  /// so that heartbeats never queue behind tensors, which use all other lanes.
  virtual bool send(address to, frame f, std::uint32_t lane = 0) = 0;

  /// Receiver of all arriving frames, whatever their destination. Called on the transport's own
  /// thread: post and return. Set once, before anything else.
  virtual void listen(receiver r) = 0;

  /// One received frame has been handled: grants the sender credit for another.
  virtual void handled(const frame& f) = 0;

  /// The sender of a received frame, by the key of its connection.
  virtual caller caller_of(const frame&) const { return {}; }
};

}  // namespace troupe::runtime
