#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "messages/frame.hpp"
#include "messages/message.hpp"

namespace troupe::runtime {

/// The first lane of large things. Between a node and its gateway there is no other.
inline constexpr std::uint32_t tensor_lane = 1;

/// No tensor may be larger: the part of a frame that a connection for tensors accepts. Between
/// datacentres gateways cut tensors, inside one they do not.
inline constexpr std::uint64_t largest_tensor_bytes = std::uint64_t{1} << 30;

inline std::uint32_t lane_of(const message& m) {
  return std::holds_alternative<tensor>(m) ? tensor_lane : 0;
}

/// The name of whoever connects without a key, which is possible only where there are none or over
/// a local socket.
inline constexpr const char* local_caller = "local";

/// Who is behind a connection.
struct caller {
  std::string name = local_caller;  // of the key
  bool is_operator = true;          // may act on everybody's jobs
};

/// One host's access to the network. Simulated or ZeroMQ; both encode, both can lose.
class transport {
 public:
  using receiver = std::function<void(frame)>;

  virtual ~transport() = default;

  /// Who this host is. A client learns it from the controller's welcome.
  virtual address self() const = 0;

  /// Sends a frame to the next hop on the way to `to`. Never blocks. False: too much is waiting for
  /// credit, or there is no such way; the frame is dropped.
  ///
  /// `lane` chooses among the connections to that host, which may be fewer. Frames of one lane stay
  /// in order. Lane 0 shares its connection with another lane only where there is but one, so that
  /// what must not wait (heartbeats) does not wait for what is large (tensors, on all other lanes).
  virtual bool send(address to, frame f, std::uint32_t lane = 0) = 0;

  /// Where frames go that arrive, whomever they are addressed to. Called on the transport's own
  /// thread: post, return. Called once, before anything else.
  virtual void listen(receiver r) = 0;

  /// The host has handled one frame of those it received: gives the sender credit for another.
  virtual void handled(const frame& f) = 0;

  /// Who sent a frame that was received here, by the key that opened the connection.
  virtual caller caller_of(const frame&) const { return {}; }
};

}  // namespace troupe::runtime
