#include "runtime/zeromq/port_claim.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"

namespace troupe::runtime {
namespace {

// `troupe up` claims a block of ports for processes that bind them later. A claim in the abstract
// socket namespace keeps two runs on one machine from taking the same block, and ends with its
// process; the test bind finds ports of other programs.
namespace fs = std::filesystem;

/// A socket without a file, in the abstract namespace: it lies in the network namespace, as ports
/// do, and is gone with the process.
std::pair<sockaddr_un, socklen_t> claim_address(int port) {
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  const auto name = fmt::format("troupe-port-{}", port);
  std::memcpy(a.sun_path + 1, name.data(), name.size());
  return {a, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

/// The process that made a claim, by the kernel's word; 0: unknown.
pid_t claimant(int port) {
  const descriptor fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const auto [a, size] = claim_address(port);
  ucred who{};
  socklen_t length = sizeof who;
  const bool known = fd >= 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&a), size) == 0 &&
                     ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0;
  return known ? who.pid : 0;
}

/// Can 127.0.0.1:port be listened at? errno says why not.
bool is_free(int port) {
  const descriptor fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // as ZeroMQ does
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<std::uint16_t>(port));
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ::bind(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0;
}

/// The kernel's number of the socket that listens at a port; empty: none is found.
// /proc/net/tcp: local addresses end with the port in hexadecimal, state 0A listens.
std::string listening_socket(int port) {
  constexpr const char* listening = "0A";
  for (const auto* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream in{table};
    for (std::string line; std::getline(in, line);) {
      std::istringstream words{line};
      std::string number, local, remote, state, skip, inode;
      words >> number >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) words >> skip;
      words >> inode;
      if (state == listening && local.ends_with(fmt::format(":{:04X}", port))) return inode;
    }
  }
  return {};
}

/// The process that listens at a port, as far as this one may see; 0: unknown.
pid_t listener(int port) {
  const auto inode = listening_socket(port);
  if (inode.empty()) return 0;
  std::error_code error;
  for (fs::directory_iterator p{"/proc", error}, end; !error && p != end; p.increment(error)) {
    const auto number = std::atoi(p->path().filename().c_str());
    std::error_code hidden;
    if (number <= 0) continue;
    for (fs::directory_iterator f{p->path() / "fd", hidden}; !hidden && f != end;
         f.increment(hidden)) {
      std::error_code gone;
      if (fs::read_symlink(f->path(), gone) == fmt::format("socket:[{}]", inode)) return number;
    }
  }
  return 0;
}

tl::unexpected<reason> in_use(int port, pid_t by) {
  return refuse(reason::kind::refused, "port {} of 127.0.0.1 is in use by {}", port,
                by > 0 ? fmt::format("process {}", by) : "another process");
}

}  // namespace

expected<port_claim> port_claim::take(int first, int count) {
  if (first < 1 || first + count - 1 > 65535)
    return refuse(reason::kind::invalid, "{} ports starting at {} exceed 65535", count, first);
  port_claim claim;
  for (int port = first; port < first + count; ++port) {
    const auto& fd = claim.sockets_.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto [a, size] = claim_address(port);
    if (fd < 0 || ::bind(fd, reinterpret_cast<const sockaddr*>(&a), size) != 0 ||
        ::listen(fd, 8) != 0) {
      if (errno == EADDRINUSE) return in_use(port, claimant(port));
      return refuse(reason::kind::unavailable, "port {} cannot be claimed: {}", port,
                    std::strerror(errno));
    }
    if (is_free(port)) continue;
    if (errno == EADDRINUSE) return in_use(port, listener(port));
    return refuse(reason::kind::unavailable, "cannot listen on port {} of 127.0.0.1: {}", port,
                  std::strerror(errno));
  }
  return claim;
}

}  // namespace troupe::runtime
