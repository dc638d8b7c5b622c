#pragma once

#include <functional>

#include "messages/frame.hpp"

namespace troupe::runtime {

/// One host's door to the network. Simulated or ZeroMQ; both encode, both can lose.
class transport {
 public:
  using receiver = std::function<void(frame)>;

  virtual ~transport() = default;

  /// Who this host is. A client learns it from the controller's welcome.
  virtual address self() const = 0;

  /// Sends a frame to the next hop on the way to `to`. Never blocks. False: too much is waiting for
  /// credit, or there is no such way; the frame is dropped.
  virtual bool send(address to, frame f) = 0;

  /// Where frames go that arrive, whomever they are addressed to. Called on the transport's own
  /// thread: post, return. Called once, before anything else.
  virtual void listen(receiver r) = 0;

  /// The host has handled one frame of those it received: gives the sender credit for another.
  virtual void handled(const frame& f) = 0;
};

}  // namespace troupe::runtime
