#include "runtime/process/link_probe.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "messages/base/descriptor.hpp"
#include "runtime/host/stopwatch.hpp"
#include "runtime/tcp.hpp"

// `troupe profile --links` against others that do not answer, with a limit far below its own.

using namespace troupe;
using Catch::Contains;

namespace {

constexpr double limit_s = 0.3;

/// The error of a measurement, which comes within the limit and not long after it.
std::string refused(std::uint16_t port) {
  const runtime::stopwatch time;
  const auto m = runtime::measure_link(fmt::format("127.0.0.1:{}", port), 1, limit_s);
  REQUIRE_FALSE(m);
  CHECK(time.us() < 9e6);  // and not its own limit of 10 s
  return m.error().text;
}

/// Accepts one connection and answers it with `reply`, a byte every `pause_s`, until it is gone.
class dripping {
 public:
  dripping(const test::listener& at, std::string reply, double pause_s)
      : thread_{[this, &at, reply = std::move(reply), pause_s] {
          const descriptor peer{::accept(at.fd(), nullptr, nullptr)};
          for (const char byte : reply) {
            pollfd none{-1, 0, 0};
            ::poll(&none, 1, static_cast<int>(pause_s * 1e3));
            if (gone_ || ::send(peer, &byte, 1, MSG_NOSIGNAL) != 1) break;
          }
          for (pollfd none{-1, 0, 0}; !gone_;) ::poll(&none, 1, 10);
        }} {}
  ~dripping() { gone_ = true; }
  dripping(const dripping&) = delete;

 private:
  std::atomic<bool> gone_{false};
  std::jthread thread_;
};

}  // namespace

TEST_CASE("a measurement of a link ends with a sentence where a listening socket never answers") {
  const test::listener silent{0};  // the kernel accepts, nobody reads
  CHECK(refused(silent.port()) == fmt::format("127.0.0.1:{}: no answer in 0.3 s", silent.port()));
}

TEST_CASE("a measurement of a link ends with a sentence where nobody accepts connections") {
  // A listener whose queue is full does not answer a connection at all, as a firewall does.
  const descriptor fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  auto at = test::loopback(0);
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
  REQUIRE(::listen(fd, 0) == 0);
  socklen_t size = sizeof at;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size);
  std::vector<descriptor> queued;
  for (int i = 0; i < 4; ++i) {
    queued.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    [[maybe_unused]] const int begun =
        ::connect(queued.back(), reinterpret_cast<const sockaddr*>(&at), sizeof at);
  }
  CHECK_THAT(refused(ntohs(at.sin_port)), Catch::EndsWith("no answer in 0.3 s"));
}

TEST_CASE("bytes now and then do not prolong the time in which a link's other side must answer") {
  const test::listener at{0};
  const dripping peer{at, std::string(200, 't'), 0.05};
  CHECK_THAT(refused(at.port()), Catch::EndsWith("no answer in 0.3 s"));
}

TEST_CASE("a measurement of a link says that the other side ends the connection at once") {
  const test::listener at{0};
  const std::jthread other{[&] {
    const descriptor peer{::accept(at.fd(), nullptr, nullptr)};
    char some[64];
    [[maybe_unused]] const auto got = ::recv(peer, some, sizeof some, 0);
  }};
  CHECK_THAT(refused(at.port()),
             Contains("something else listens there, and ends the connection; run `troupe"));
}

TEST_CASE("a measurement of a link says that nothing listens at the address") {
  std::uint16_t port = 0;
  {
    const test::listener gone{0};
    port = gone.port();
  }
  CHECK_THAT(refused(port), Contains(fmt::format("127.0.0.1:{}: ", port)) && Contains("refused"));
}
