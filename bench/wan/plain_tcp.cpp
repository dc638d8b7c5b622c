#include "wan/plain_tcp.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "runtime/host/stopwatch.hpp"

namespace troupe::bench {

namespace {

using harness::emulated_link;

constexpr double warm_up_s = 1;
constexpr std::size_t piece_bytes = 64 << 10;

struct sockets {
  std::vector<pollfd> all;
  ~sockets() {
    for (const auto& s : all) ::close(s.fd);
  }
  void add(int fd, short events) {
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    all.push_back({fd, events, 0});
  }
};

sockaddr_in place(std::uint32_t side, std::uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = port;
  ::inet_pton(AF_INET, emulated_link::address(side).c_str(), &a.sin_addr);
  return a;
}

sockaddr* any(sockaddr_in& a) {
  return reinterpret_cast<sockaddr*>(&a);
}

/// From the first side to the second.
bool connect(const emulated_link& link, std::uint32_t n, sockets& from, sockets& to) {
  auto at = place(1, 0);
  socklen_t size = sizeof at;
  int listener = -1;
  link.inside(1, [&] {
    listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ::bind(listener, any(at), sizeof at);
    ::listen(listener, static_cast<int>(n));
    ::getsockname(listener, any(at), &size);
  });
  sockets listening;
  listening.all.push_back({listener, POLLIN, 0});
  bool all = true;
  link.inside(0, [&] {
    for (std::uint32_t i = 0; i < n && all; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      all = ::connect(fd, any(at), sizeof at) == 0;
      from.add(fd, POLLOUT);
      const int other = all ? ::accept(listener, nullptr, nullptr) : -1;
      if (other >= 0) to.add(other, POLLIN);
    }
  });
  return all && to.all.size() == n;
}

/// Calls `one` for each socket that can go on, until it is time.
template <class F>
void serve(sockets& s, const std::atomic<bool>& stop, F one) {
  while (!stop) {
    ::poll(s.all.data(), s.all.size(), 50);
    for (const auto& p : s.all)
      if (p.revents != 0) one(p.fd);
  }
}

}  // namespace

double plain_tcp_gbps(const emulated_link& link, std::uint32_t connections, double seconds) {
  sockets from, to;
  if (!connect(link, connections, from, to)) return -1;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> received{0};
  std::thread sender{[&] {
    const std::vector<char> piece(piece_bytes);
    serve(from, stop, [&](int fd) { ::send(fd, piece.data(), piece.size(), MSG_NOSIGNAL); });
  }};
  std::thread receiver{[&] {
    std::vector<char> piece(4 * piece_bytes);
    serve(to, stop, [&](int fd) {
      if (const auto n = ::recv(fd, piece.data(), piece.size(), 0); n > 0)
        received += static_cast<std::uint64_t>(n);
    });
  }};
  const auto rest = [](double s) { std::this_thread::sleep_for(std::chrono::duration<double>(s)); };
  rest(warm_up_s);
  const runtime::stopwatch watch;
  const auto before = received.load();
  rest(seconds);
  const double gbps = static_cast<double>(received - before) * 8e-9 / watch.s();
  stop = true;
  sender.join();
  receiver.join();
  return gbps;
}

}  // namespace troupe::bench
