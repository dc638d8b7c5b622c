#include "runtime/zeromq/pending.hpp"

#include "runtime/tcp.hpp"

using namespace troupe::test;
using troupe::runtime::pending_connections;
using troupe::runtime::test::eventually;

namespace {

/// Both ends of TCP connections, closed at the end.
class tcp_connections {
 public:
  ~tcp_connections() {
    for (const int fd : all_) ::close(fd);
  }
  struct ends {
    int near_end, far_end;
  };
  ends make() {
    ends e{};
    e.far_end = connect_to(at_.port());
    e.near_end = ::accept4(at_.fd(), nullptr, nullptr, SOCK_CLOEXEC);
    REQUIRE(e.far_end >= 0);
    REQUIRE(e.near_end >= 0);
    all_.insert(all_.end(), {e.near_end, e.far_end});
    return e;
  }
  /// Only the near end; the other one has hung up.
  int half() {
    const auto e = make();
    ::close(e.far_end);
    all_.pop_back();
    return e.near_end;
  }

 private:
  listener at_{0};
  std::vector<int> all_;
};

bool is_cut(int far_end) {
  char c = 0;
  return ::recv(far_end, &c, 1, MSG_DONTWAIT) == 0;
}

void send_bytes(const tcp_connections::ends& e, std::size_t bytes) {
  std::vector<char> some(1 << 16);
  for (std::size_t n = 0; bytes > 0; bytes -= n) {
    n = std::min(bytes, some.size());
    REQUIRE(::send(e.far_end, some.data(), n, 0) == static_cast<ssize_t>(n));
    REQUIRE(::recv(e.near_end, some.data(), n, MSG_WAITALL) == static_cast<ssize_t>(n));
  }
}

}  // namespace

TEST_CASE("when too many connections wait for their greeting, the oldest are closed") {
  tcp_connections c;
  pending_connections p;
  const auto first = c.make(), second = c.make();
  for (const auto& e : {first, second}) p.accepted(e.near_end);
  for (std::size_t i = 2; i < pending_connections::max; ++i) p.accepted(c.half());
  CHECK(p.cut() == 0);
  CHECK_FALSE(is_cut(first.far_end));
  p.accepted(first.near_end);  // the newest now
  CHECK(p.cut() == 0);
  p.accepted(c.half());
  CHECK(p.cut() == 1);
  CHECK(is_cut(second.far_end));
  CHECK_FALSE(is_cut(first.far_end));
  CHECK(p.cut() == 0);
  for (int i = 0; i < 3; ++i) p.accepted(c.half());
  CHECK(p.cut() == 3);
}

TEST_CASE("a connection that sends more bytes than a greeting needs before its welcome is closed") {
  tcp_connections c;
  pending_connections p;
  const auto honest = c.make(), greedy = c.make();
  for (const auto& e : {honest, greedy}) p.accepted(e.near_end);
  for (const auto& e : {honest, greedy}) send_bytes(e, pending_connections::max_bytes);
  CHECK(p.cut() == 0);
  send_bytes(greedy, 1);
  CHECK(p.cut() == 1);
  CHECK(is_cut(greedy.far_end));
  CHECK_FALSE(is_cut(honest.far_end));
  p.welcomed(honest.near_end);
  CHECK(p.empty());
  send_bytes(honest, 1);
  CHECK(p.cut() == 0);
}

TEST_CASE("a reused descriptor, and one that is not a TCP connection, are not closed") {
  tcp_connections c;
  pending_connections p;
  const auto old = c.make(), other = c.make();
  p.accepted(old.near_end);
  p.accepted(other.near_end);
  send_bytes(other, pending_connections::max_bytes + 1);
  REQUIRE(::dup2(other.near_end, old.near_end) == old.near_end);
  p.ended(other.near_end);
  CHECK_FALSE(p.empty());
  CHECK(p.cut() == 0);
  CHECK(p.empty());
  CHECK_FALSE(is_cut(other.far_end));
  int local[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, local) == 0);
  for (const int fd : {local[0], -1}) p.accepted(fd);
  CHECK(p.empty());
  for (const int fd : local) ::close(fd);
}
