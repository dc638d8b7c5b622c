#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <zmq.hpp>

#include "messages/codec/codec.hpp"
#include "runtime/world.hpp"
#include "runtime/zeromq/keys.hpp"
#include "runtime/zeromq/lane.hpp"

// Beneath ZeroMQ: TCP between two hosts that can be cut, listeners that hang up, peers that speak
// ZeroMQ without this project's transport, and what a process's memory comes to.

namespace troupe::test {

inline std::uint16_t port_of(const std::string& endpoint) {
  return static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
}

inline sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(port);
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}

/// A connection to a port of this machine; below 0: none.
inline int connect_to(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto a = loopback(port);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0) return fd;
  ::close(fd);
  return -1;
}

/// Listens at a port of this machine, 0: any that is free.
class listener {
 public:
  explicit listener(std::uint16_t port) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    auto a = loopback(port);
    REQUIRE(::bind(fd_, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0);
    REQUIRE(::listen(fd_, 64) == 0);
    socklen_t size = sizeof a;
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&a), &size);
    port_ = ntohs(a.sin_port);
  }
  ~listener() { ::close(fd_); }
  listener(const listener&) = delete;

  int fd() const { return fd_; }
  std::uint16_t port() const { return port_; }

 private:
  int fd_ = -1;
  std::uint16_t port_ = 0;
};

/// Accepts connections, and hangs up in the middle of the handshake.
class slammer {
 public:
  explicit slammer(std::uint16_t port) : at_{port}, thread_{[this] { run(); }} {}
  ~slammer() {
    stop_ = true;
    thread_.join();
  }
  int slammed() const { return slammed_; }

 private:
  void run() {
    while (!stop_) {
      pollfd p{at_.fd(), POLLIN, 0};
      if (::poll(&p, 1, 20) <= 0) continue;
      const int fd = ::accept(at_.fd(), nullptr, nullptr);
      if (fd < 0) continue;
      char some[16];
      [[maybe_unused]] const auto got = ::recv(fd, some, sizeof some, 0);
      ::close(fd);
      ++slammed_;
    }
  }
  listener at_;
  std::atomic<bool> stop_{false};
  std::atomic<int> slammed_{0};
  std::thread thread_;
};

/// Stands between a host and its upstream. One of the connections can be cut; none is let through
/// again until it is mended.
class proxy {
 public:
  explicit proxy(std::uint16_t upstream) : upstream_{upstream}, thread_{[this] { run(); }} {}
  ~proxy() {
    stop_ = true;
    thread_.join();
    for (auto& [a, b] : pairs_) ::close(a), ::close(b);
  }
  std::string endpoint() const { return "tcp://127.0.0.1:" + std::to_string(at_.port()); }
  void cut(std::size_t which) {
    mended_ = false;
    cut_ = static_cast<int>(which);
  }
  void mend() { mended_ = true; }

 private:
  void run() {
    while (!stop_) {
      if (const int which = cut_.exchange(-1); which >= 0 && !pairs_.empty())
        drop(static_cast<std::size_t>(which) % pairs_.size());
      std::vector<pollfd> all{{at_.fd(), POLLIN, 0}};
      for (const auto& [a, b] : pairs_) {
        all.push_back({a, POLLIN, 0});
        all.push_back({b, POLLIN, 0});
      }
      if (::poll(all.data(), all.size(), 5) <= 0) continue;
      for (std::size_t i = pairs_.size(); i-- > 0;) {
        const auto [a, b] = pairs_[i];
        if ((all[1 + 2 * i].revents && !pump(a, b)) || (all[2 + 2 * i].revents && !pump(b, a)))
          drop(i);
      }
      if (all[0].revents) let_in();
    }
  }
  void let_in() {
    const int a = ::accept(at_.fd(), nullptr, nullptr);
    const int b = mended_ ? connect_to(upstream_) : -1;
    if (b < 0) return void(::close(a));
    pairs_.emplace_back(a, b);
  }
  void drop(std::size_t i) {
    ::close(pairs_[i].first), ::close(pairs_[i].second);
    pairs_.erase(pairs_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  static bool pump(int from, int to) {
    std::array<char, 65536> some;
    const auto got = ::recv(from, some.data(), some.size(), 0);
    for (ssize_t sent = 0; sent < got;) {
      const auto n =
          ::send(to, some.data() + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += n;
    }
    return got > 0;
  }

  listener at_{0};
  std::uint16_t upstream_;
  std::atomic<bool> stop_{false}, mended_{true};
  std::atomic<int> cut_{-1};
  std::vector<std::pair<int, int>> pairs_;
  std::thread thread_;
};

/// Speaks the protocol from this page of docs/wire.md alone, honestly or not.
class raw_dealer {
 public:
  raw_dealer(const std::string& endpoint, std::uint64_t incarnation,
             const runtime::key_ring* mine = nullptr)
      : incarnation_{incarnation} {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::sndtimeo, 10'000);
    socket_.set(zmq::sockopt::rcvtimeo, 10'000);
    socket_.set(zmq::sockopt::rcvhwm, 1);  // what is not read stays with the sender
    if (mine) {
      socket_.set(zmq::sockopt::curve_serverkey, mine->key_of("controller"));
      socket_.set(zmq::sockopt::curve_publickey, mine->public_key);
      socket_.set(zmq::sockopt::curve_secretkey, mine->secret_key);
    }
    socket_.connect(endpoint);
  }

  bool send(const frame& f) {
    return socket_.send(buffer_of(f.header), zmq::send_flags::sndmore) &&
           socket_.send(buffer_of(f.body), zmq::send_flags::none);
  }
  message receive() {
    zmq::message_t header, body;
    REQUIRE(socket_.recv(header));
    REQUIRE(socket_.recv(body));
    const auto m = decode({static_cast<const std::byte*>(header.data()), header.size()});
    REQUIRE(m);
    return m->second;
  }
  address greet() {
    REQUIRE(send(encode(first_client_address, 0, hello{"raw", incarnation_})));
    return std::get<welcome>(receive()).you;
  }

 private:
  static zmq::const_buffer buffer_of(const payload& p) {
    return zmq::buffer(p.bytes().data(), p.bytes().size());
  }
  std::uint64_t incarnation_;
  zmq::context_t context_;
  zmq::socket_t socket_{context_, zmq::socket_type::dealer};
};

}  // namespace troupe::test
