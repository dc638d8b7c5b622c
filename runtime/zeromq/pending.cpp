#include "runtime/zeromq/pending.hpp"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace troupe::runtime {
namespace {

/// The other end of a TCP connection; empty: there is none.
std::string peer_of(int descriptor) {
  sockaddr_storage a{};
  socklen_t size = sizeof a;
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&a), &size) != 0) return {};
  if (a.ss_family != AF_INET && a.ss_family != AF_INET6) return {};
  return {reinterpret_cast<const char*>(&a), size};
}

// The kernel counts what ZeroMQ, which buffers a message until it is whole, does not show.
std::uint64_t received_bytes(int descriptor) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return info.tcpi_bytes_received;
}

}  // namespace

void pending_connections::accepted(int descriptor) {
  ended(descriptor);
  if (auto peer = peer_of(descriptor); !peer.empty()) all_.push_back({descriptor, std::move(peer)});
}

void pending_connections::ended(int descriptor) {
  std::erase_if(all_, [descriptor](const entry& e) { return e.descriptor == descriptor; });
}

// By the descriptor's peer address and not by the descriptor alone: ZeroMQ may have closed it, and
// the number may be another file's by now.
std::size_t pending_connections::cut() {
  std::size_t cuts = 0, too_many = all_.size() > max ? all_.size() - max : 0;
  std::erase_if(all_, [&](const entry& e) {
    if (peer_of(e.descriptor) != e.peer) return true;
    const bool old = too_many > 0;
    if (old) --too_many;
    if (!old && received_bytes(e.descriptor) <= max_bytes) return false;
    // ZeroMQ's own thread sees the end of the stream and closes it.
    ::shutdown(e.descriptor, SHUT_RDWR);
    ++cuts;
    return true;
  });
  return cuts;
}

}  // namespace troupe::runtime
