#pragma once

#include <string>

#include <zmq.hpp>

#include "runtime/host/log_limiter.hpp"
#include "runtime/zeromq/keys.hpp"

namespace troupe::runtime {

/// ZeroMQ asks here, over ZAP (RFC 27), whether a peer's key may come in. One per ZeroMQ context.
class zap_handler {
 public:
  zap_handler(zmq::context_t& context, key_ring keys);

  /// To be polled.
  zmq::socket_t& socket() { return socket_; }

  /// Answers everything that is asked. A key of the list is let in, and its messages carry the name
  /// as "User-Id"; any other is refused and logged, once a minute for each address.
  void answer();

 private:
  void log_refusal(const std::string& from, const std::string& key);

  key_ring keys_;
  zmq::socket_t socket_;
  log_limiter logged_;
};

}  // namespace troupe::runtime
