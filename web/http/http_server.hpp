#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "messages/base/reason.hpp"
#include "web/http/http_messages.hpp"

namespace troupe::web {

/// HTTP/1.1 and 1.0 on one port, with one thread: connections that are kept, pipelined requests
/// (answered one after the other), streams, HEAD. A client that closes its connection, or its
/// sending half, has left.
class http_server {
 public:
  /// host: an IP address, or "localhost". port 0: any. Fails (unavailable) if it cannot listen.
  static expected<std::unique_ptr<http_server>> start(const std::string& host, std::uint16_t port,
                                                      const http_limits& limits,
                                                      http_handler handler);
  /// Cuts all connections; the handler is not called any more.
  ~http_server();
  http_server(const http_server&) = delete;
  http_server& operator=(const http_server&) = delete;

  std::uint16_t port() const;

  /// From now on each answer is its connection's last.
  void close_after_answers();
  /// Connections with a request that is not answered to the end.
  std::size_t answering() const;

 private:
  class listener;
  explicit http_server(std::unique_ptr<listener> l);
  std::unique_ptr<listener> listener_;
};

/// Is it an address that only this machine can reach? Fails if it is no address.
expected<bool> is_loopback(const std::string& host);

}  // namespace troupe::web
