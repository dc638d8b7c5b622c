#pragma once

#include <cstdint>
#include <string>

#include <zmq.hpp>

namespace troupe::runtime {

/// ZeroMQ's events about the connections of one socket.
///
/// ZeroMQ's I/O thread writes the events to a PAIR socket and blocks while it is not read. A
/// monitor whose reading end is closed first therefore stops every connection of the process at the
/// next event, and the context never ends. So this stops the events before it closes its end; it
/// must be destroyed before the socket.
class socket_monitor {
 public:
  /// Call before the socket binds or connects. `name` is unique in the context; `events`:
  /// ZMQ_EVENT_*. Throws zmq::error_t.
  socket_monitor(zmq::context_t& context, zmq::socket_t& socket, const std::string& name,
                 int events);
  ~socket_monitor();
  socket_monitor(const socket_monitor&) = delete;
  socket_monitor& operator=(const socket_monitor&) = delete;

  struct event {
    std::uint16_t number = 0;  // 0: there is none
    std::int32_t value = 0;    // of an event about one connection: its descriptor
  };
  event next();

  /// Readable after new events, edge-triggered as every ZeroMQ descriptor.
  int descriptor() { return events_.get(zmq::sockopt::fd); }

 private:
  zmq::socket_t& socket_;
  zmq::socket_t events_;
};

}  // namespace troupe::runtime
