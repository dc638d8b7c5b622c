#pragma once

#include <catch2/catch.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <zmq.hpp>

#include "runtime/world.hpp"
#include "runtime/zeromq/keys.hpp"
#include "runtime/zeromq/lane.hpp"

// Peers that speak ZeroMQ without this project's transport, and send any bytes: one that
// connects to a host, and one to which a host connects.

namespace troupe::runtime::test {

class raw_socket {
 public:
  void send_parts(const std::vector<std::string>& parts) {
    for (std::size_t i = 0; i < parts.size(); ++i)
      socket_.send(zmq::buffer(parts[i]),
                   i + 1 < parts.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
  static std::string text(const payload& p) {
    return {reinterpret_cast<const char*>(p.bytes().data()), p.bytes().size()};
  }
  static std::vector<std::string> parts_of_batch(const std::vector<frame>& frames) {
    auto b = make_batch({frames.begin(), frames.end()}, frames.size());
    return {b.header.to_string(), b.body.to_string()};
  }

 protected:
  explicit raw_socket(zmq::socket_type type) : socket_{context_, type} {
    socket_.set(zmq::sockopt::linger, 0);
  }
  /// All parts of the next message; none: nothing has come in that time.
  std::vector<std::string> receive_parts(double within_s) {
    socket_.set(zmq::sockopt::rcvtimeo, static_cast<int>(1000 * within_s));
    std::vector<std::string> parts;
    zmq::message_t part;
    do {
      if (!socket_.recv(part)) return {};
      parts.push_back(part.to_string());
    } while (part.more());
    return parts;
  }
  static message message_in(const std::string& header) {
    const auto m = decode(std::as_bytes(std::span{header}));
    REQUIRE(m);
    return m->second;
  }

  zmq::context_t context_;
  zmq::socket_t socket_;
};

/// Connects to a host.
class raw_connector : public raw_socket {
 public:
  /// With a key, to the host of that name.
  explicit raw_connector(const std::string& endpoint, const std::string& routing_id = {},
                         const key_ring* mine = nullptr, const std::string& server = "controller")
      : raw_socket{zmq::socket_type::dealer} {
    if (!routing_id.empty()) socket_.set(zmq::sockopt::routing_id, routing_id);
    if (mine != nullptr) {
      socket_.set(zmq::sockopt::curve_serverkey, mine->key_of(server));
      socket_.set(zmq::sockopt::curve_publickey, mine->public_key);
      socket_.set(zmq::sockopt::curve_secretkey, mine->secret_key);
    }
    socket_.connect(endpoint);
  }
  void send(const frame& f) { send_parts({text(f.header), text(f.body)}); }
  std::optional<message> receive_within(double seconds) {
    const auto parts = receive_parts(seconds);
    if (parts.empty()) return {};
    REQUIRE(parts.size() == 2);
    return message_in(parts[0]);
  }
  message receive() {
    const auto m = receive_within(long_s);
    REQUIRE(m);
    return *m;
  }
  template <class T>
  T receive_a() {
    const auto m = receive();
    REQUIRE(std::holds_alternative<T>(m));
    return std::get<T>(m);
  }
  message greet(const hello& h, address from = first_client_address, address to = 0) {
    send(encode(from, to, h));
    return receive();
  }
  /// As a client; its address.
  address greet() {
    const auto m = greet(hello{"somebody", 1});
    REQUIRE(std::holds_alternative<welcome>(m));
    return std::get<welcome>(m).you;
  }
};

/// A host connects to it.
class raw_listener : public raw_socket {
 public:
  explicit raw_listener(const std::string& at = "tcp://127.0.0.1:*")
      : raw_socket{zmq::socket_type::router} {
    socket_.bind(at);
  }
  std::string endpoint() const { return socket_.get(zmq::sockopt::last_endpoint); }

  /// From any peer. What is sent goes to the peer that was received from last.
  std::optional<message> receive_within(double seconds) {
    const auto parts = receive_parts(seconds);
    if (parts.empty()) return {};
    REQUIRE(parts.size() == 3);
    to_ = parts[0];
    return message_in(parts[1]);
  }
  template <class T>
  T receive_a() {
    const auto m = receive_within(long_s);
    REQUIRE(m);
    REQUIRE(std::holds_alternative<T>(*m));
    return std::get<T>(*m);
  }
  const std::string& received() const { return to_; }
  void answer(std::vector<std::string> parts) {
    parts.insert(parts.begin(), to_);
    send_parts(parts);
  }
  void answer(const frame& f) { answer({text(f.header), text(f.body)}); }

 private:
  std::string to_;
};

}  // namespace troupe::runtime::test
