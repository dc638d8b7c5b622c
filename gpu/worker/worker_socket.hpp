#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "gpu/worker/worker_protocol.hpp"
#include "messages/base/descriptor.hpp"

namespace troupe::gpu::python {

/// A connection to a worker, in datagrams. One thread sends and receives; close() may come from
/// another one. All failures are `unavailable` (the worker is gone), or `malformed`.
class worker_connection {
 public:
  explicit worker_connection(descriptor socket) : socket_{std::move(socket)} {}

  /// `file`: a descriptor that the worker gets, too; -1: none.
  expected<void> send(std::string_view datagram, int file = -1);
  /// Waits for a reply; `limit_s`: so long at most; 0: without end.
  expected<reply> receive(double limit_s = 0);
  /// Asks the worker to stop, and makes send() and receive() fail, those under way too.
  void close();

 private:
  descriptor socket_;
  std::string received_;  // one buffer for all datagrams: a fresh one is slow at this size
};

/// A socket at which a worker connects once: a file that this user alone may open.
class worker_listener {
 public:
  /// `directory`: this user's alone, and its path short enough for sockets.
  static expected<worker_listener> open(const std::string& directory);
  worker_listener(worker_listener&&) = default;
  /// Removes the socket's file.
  ~worker_listener();

  const std::string& path() const { return path_; }
  /// Waits for the worker for so long at most, and while `ended()` returns an empty text, which is
  /// how the worker's process has ended. A connection of another user is closed.
  expected<worker_connection> accept(double limit_s, const std::function<std::string()>& ended);

 private:
  worker_listener(descriptor socket, std::string path)
      : socket_{std::move(socket)}, path_{std::move(path)} {}

  descriptor socket_;
  std::string path_;
};

}  // namespace troupe::gpu::python
