#include "runtime/process/free_ports.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "messages/base/descriptor.hpp"
#include "messages/base/name_hash.hpp"

namespace troupe::runtime {

namespace {

std::string text_of(const char* file) {
  std::ifstream in{file};
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// Binds and listens as programs do: with SO_REUSEADDR, so that connections of an earlier program
/// that are not quite over are no obstacle.
bool can_listen(int family, const sockaddr* at, socklen_t size) {
  const descriptor fd{::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (fd < 0) return family == AF_INET6;  // a machine without IPv6
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  return ::bind(fd, at, size) == 0 && ::listen(fd, 1) == 0;
}

}  // namespace

// Ports outside of the kernel's range for outgoing connections: inside it, any connection may take
// a port between the check and the program's bind. From 20000 to the range's begin if that leaves a
// thousand, else the larger gap beside the range.
port_range ports_for_programs(std::string_view text) {
  constexpr int first = 20000, last = 65535, privileged = 1024, enough = 1000;
  int low = 0, high = 0;
  if (std::sscanf(std::string{text}.c_str(), "%d %d", &low, &high) != 2 || low < 1 || high < low)
    low = 32768, high = 60999;
  const auto range = [](int from, int to) {
    return port_range{static_cast<std::uint16_t>(from), static_cast<std::uint16_t>(to)};
  };
  if (low - first >= enough) return range(first, std::min(low, last + 1) - 1);
  const int before = std::max(0, low - privileged), behind = std::max(0, last - high);
  if (before == 0 && behind == 0) return range(first, last);
  return before > behind ? range(privileged, low - 1) : range(high + 1, last);
}

port_range ports_for_programs() {
  return ports_for_programs(text_of("/proc/sys/net/ipv4/ip_local_port_range"));
}

bool is_free_port(std::uint16_t port) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  v4.sin_addr.s_addr = htonl(INADDR_ANY);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  v6.sin6_addr = in6addr_any;
  return can_listen(AF_INET, reinterpret_cast<const sockaddr*>(&v4), sizeof v4) &&
         can_listen(AF_INET6, reinterpret_cast<const sockaddr*>(&v6), sizeof v6);
}

// Starts at a number of the caller's, so that consecutive jobs get different ports.
std::vector<std::uint16_t> free_ports(std::size_t count, std::uint64_t start) {
  const auto [low, high] = ports_for_programs();
  const std::uint64_t width = high - low + 1u;
  std::vector<std::uint16_t> free;
  for (std::uint64_t i = 0; i < width && free.size() < count; ++i) {
    const auto port = static_cast<std::uint16_t>(low + (start + i) % width);
    if (is_free_port(port)) free.push_back(port);
  }
  return free;
}

std::uint64_t boot_number() {
  const auto text = text_of("/proc/sys/kernel/random/boot_id");
  return text.empty() ? 0 : hash_of_name(text);
}

}  // namespace troupe::runtime
