#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "messages/base/random.hpp"
#include "web/http/http_messages.hpp"

// The connections of an http_server; for its .cpp files alone.

namespace troupe::web {

/// A connection, to the server.
class http_connection {
 public:
  virtual ~http_connection() = default;
  virtual void close() = 0;
  /// Whether it waits for a request, or has only a part of one.
  virtual bool waits() const = 0;
  virtual bool answers() const = 0;
};

/// State that all connections of a server share; only the server's thread uses it, except `over`.
struct http_connections {
  boost::asio::io_context io{1};
  http_limits limits;
  http_handler handler;
  std::map<std::uint64_t, std::shared_ptr<http_connection>> open;  // the oldest first
  std::uint64_t accepted = 0;
  std::uint64_t bodies_bytes = 0;  // that have been read of requests that are on the way
  random_source random{0};         // for names of requests
  std::atomic<bool> over{false};
  std::atomic<bool> ending{false};  // each answer is its connection's last
};

/// A client has connected.
void start_session(std::shared_ptr<http_connections> shared, boost::asio::ip::tcp::socket socket);

}  // namespace troupe::web
