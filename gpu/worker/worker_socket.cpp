#include "gpu/worker/worker_socket.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "gpu/device/clock.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu::python {

namespace {

auto system_error(const char* what) {
  return refuse(reason::kind::unavailable, "{}: {}", what, std::strerror(errno));
}

/// Is the other side a process of this user?
bool is_own(int socket) {
  ucred who{};
  socklen_t size = sizeof who;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == ::geteuid();
}

/// True: readable, or closed. False: nothing came within the limit.
bool wait_readable(int socket, double limit_s) {
  const double until_s = now_s() + limit_s;
  for (;;) {
    pollfd p{socket, POLLIN, 0};
    const double left_ms = std::max(0.0, std::ceil((until_s - now_s()) * 1e3));
    const int n = ::poll(&p, 1, static_cast<int>(std::min(left_ms, 1e9)));
    if (n >= 0 || errno != EINTR) return n != 0;
  }
}

}  // namespace

expected<void> worker_connection::send(std::string_view datagram, int file) {
  if (datagram.size() > max_message_bytes)
    return refuse(reason::kind::invalid, "a message to a worker has {} bytes, expected {} at most",
                  datagram.size(), max_message_bytes);
  iovec part{const_cast<char*>(datagram.data()), datagram.size()};
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (file >= 0) {
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    auto* c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &file, sizeof file);
  }
  ssize_t n = 0;
  do {
    n = ::sendmsg(socket_, &m, MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return system_error("the worker's connection is closed");
  return {};
}

// Descriptors that a worker sends are closed by the kernel, as there is no room for them.
expected<reply> worker_connection::receive(double limit_s) {
  if (limit_s > 0 && !wait_readable(socket_, limit_s))
    return refuse(reason::kind::unavailable, "the worker was silent for {} s", limit_s);
  received_.resize(max_message_bytes + 1);
  iovec part{received_.data(), received_.size()};
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  ssize_t n = 0;
  do {
    n = ::recvmsg(socket_, &m, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return system_error("the worker's connection is closed");
  if (n == 0) return refuse(reason::kind::unavailable, "the worker's connection is closed");
  if (static_cast<std::size_t>(n) > max_message_bytes)
    return refuse(reason::kind::malformed, "the worker sent more than {} bytes", max_message_bytes);
  return decode_reply(std::string_view{received_}.substr(0, static_cast<std::size_t>(n)));
}

// The message is there before the connection's end, so that a worker that listens ends by itself.
void worker_connection::close() {
  const auto stop = encode(request_header{}, {});
  [[maybe_unused]] const auto sent =
      ::send(socket_, stop.data(), stop.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(socket_, SHUT_RDWR);
}

expected<worker_listener> worker_listener::open(const std::string& directory) {
  const auto path = directory + "/worker";
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  if (path.size() >= sizeof at.sun_path)
    return refuse(reason::kind::invalid, "{}: a socket's path has {} bytes at most", path,
                  sizeof at.sun_path - 1);
  std::memcpy(at.sun_path, path.c_str(), path.size() + 1);
  descriptor socket{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  if (socket < 0) return system_error("a worker's socket");
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
    return system_error(path.c_str());
  worker_listener made{std::move(socket), path};
  if (::chmod(path.c_str(), 0600) != 0 || ::listen(made.socket_, 4) != 0)
    return system_error(path.c_str());
  return made;
}

worker_listener::~worker_listener() {
  if (socket_ >= 0) ::unlink(path_.c_str());
}

expected<worker_connection> worker_listener::accept(double limit_s,
                                                    const std::function<std::string()>& ended) {
  constexpr double look_s = 0.1;  // how often the process is looked at
  const double until_s = now_s() + limit_s;
  while (now_s() < until_s) {
    if (wait_readable(socket_, std::min(look_s, until_s - now_s()))) {
      descriptor peer{::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC)};
      if (peer >= 0 && is_own(peer)) return worker_connection{std::move(peer)};
    } else if (const auto how = ended(); !how.empty()) {
      return refuse(reason::kind::unavailable, "the worker {} before it connected", how);
    }
  }
  return refuse(reason::kind::unavailable, "the worker did not connect within {} s", limit_s);
}

}  // namespace troupe::gpu::python
