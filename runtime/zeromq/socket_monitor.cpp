#include "runtime/zeromq/socket_monitor.hpp"

#include <cstring>

namespace troupe::runtime {

socket_monitor::socket_monitor(zmq::context_t& context, zmq::socket_t& socket,
                               const std::string& name, int events)
    : socket_{socket}, events_{context, zmq::socket_type::pair} {
  const auto at = "inproc://monitor-" + name;
  if (zmq_socket_monitor(socket.handle(), at.c_str(), events) != 0) throw zmq::error_t{};
  events_.set(zmq::sockopt::linger, 0);
  events_.set(zmq::sockopt::rcvhwm, 0);  // a full queue would block the I/O thread, too
  events_.connect(at);
}

socket_monitor::~socket_monitor() {
  zmq_socket_monitor(socket_.handle(), nullptr, 0);
}

// An event is two parts: number and value (6 bytes, unaligned, in the machine's order), then the
// endpoint.
socket_monitor::event socket_monitor::next() {
  zmq::message_t what, where;
  event e;
  if (!events_.recv(what, zmq::recv_flags::dontwait)) return e;
  if (what.more()) (void)events_.recv(where, zmq::recv_flags::dontwait);
  if (what.size() < sizeof e.number + sizeof e.value) return e;
  const auto* bytes = static_cast<const char*>(what.data());
  std::memcpy(&e.number, bytes, sizeof e.number);
  std::memcpy(&e.value, bytes + sizeof e.number, sizeof e.value);
  return e;
}

}  // namespace troupe::runtime
