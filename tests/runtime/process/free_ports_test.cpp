#include "runtime/process/free_ports.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>

using namespace troupe::runtime;

namespace {

/// A socket that listens at a port of one address.
struct bound_port {
  bound_port(int family, std::uint16_t port) : fd{::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    v6.sin6_addr = in6addr_loopback;
    const bool six = family == AF_INET6;
    const auto* at =
        six ? reinterpret_cast<const sockaddr*>(&v6) : reinterpret_cast<const sockaddr*>(&v4);
    listens = fd >= 0 && ::bind(fd, at, six ? sizeof v6 : sizeof v4) == 0 && ::listen(fd, 1) == 0;
  }
  ~bound_port() { ::close(fd); }
  int fd;
  bool listens = false;
};

}  // namespace

TEST_CASE("ports for programs lie outside of the range of outgoing connections") {
  CHECK(ports_for_programs("32768\t60999\n") == port_range{20000, 32767});
  CHECK(ports_for_programs("30000 65535") == port_range{20000, 29999});
  CHECK(ports_for_programs("1024 40000") == port_range{40001, 65535});
  CHECK(ports_for_programs("20500 60999") == port_range{1024, 20499});
  CHECK(ports_for_programs("1024 65535") == port_range{20000, 65535});
  CHECK(ports_for_programs("nonsense") == port_range{20000, 32767});
  CHECK(ports_for_programs("") == port_range{20000, 32767});
}

TEST_CASE("a port at which somebody listens on any address is not free") {
  const auto all = free_ports(3, 77);
  REQUIRE(all.size() == 3);
  const auto [low, high] = ports_for_programs();
  for (const auto port : all) {
    CHECK(port >= low);
    CHECK(port <= high);
    CHECK(is_free_port(port));
  }
  {
    const bound_port first{AF_INET, all[0]};
    REQUIRE(first.listens);
    CHECK(!is_free_port(all[0]));
    const auto others = free_ports(3, all[0] - low);
    CHECK(std::ranges::find(others, all[0]) == others.end());
    if (const bound_port second{AF_INET6, all[1]}; second.listens) CHECK(!is_free_port(all[1]));
  }
  CHECK(is_free_port(all[0]));
}
