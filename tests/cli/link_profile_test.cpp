#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <sstream>
#include <string>
#include <thread>

#include "cli/program.hpp"
#include "harness/scratch.hpp"
#include "harness/shell.hpp"
#include "messages/base/descriptor.hpp"
#include "runtime/host/wait.hpp"

using Catch::Contains;
using nlohmann::json;

namespace runtime = troupe::runtime;

namespace {

constexpr double long_s = 120;

/// A listening `troupe profile --links` in a process of its own: its port is in the file.
class listening {
 public:
  explicit listening(const std::string& more = "") {
    // A listener that nobody measures would stay for ever.
    const auto command = "timeout 120 " + std::string{TROUPE_PROGRAM} +
                         " profile --links --listen 127.0.0.1:0 " + more + " >" + in_ / "out" +
                         " 2>" + in_ / "err" + " </dev/null; echo $? >" + in_ / "status";
    REQUIRE(std::system(("( " + command + " ) &").c_str()) == 0);
    REQUIRE(runtime::wait_until([&] { return !address_of(err()).empty(); }, long_s));
  }
  std::string address() const { return address_of(err()); }
  std::string err() const { return troupe::test::read_file(in_ / "err"); }
  /// When it has ended.
  std::string out() const {
    REQUIRE(runtime::wait_until([&] { return !troupe::test::read_file(in_ / "status").empty(); },
                                long_s));
    return troupe::test::read_file(in_ / "out");
  }
  int status() const {
    out();
    return std::stoi(troupe::test::read_file(in_ / "status"));
  }

 private:
  static std::string address_of(const std::string& said) {
    constexpr std::string_view before = "listening at ";
    const auto at = said.find(before), end = said.find(';');
    if (at == std::string::npos || end == std::string::npos) return {};
    return said.substr(at + before.size(), end - at - before.size());
  }
  troupe::test::scratch in_;
};

/// A connection to 127.0.0.1.
troupe::descriptor connected(const std::string& address) {
  troupe::descriptor fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.find(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  return fd;
}

void say(int fd, const std::string& text) {
  REQUIRE(::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
}

std::string received(int fd, std::size_t bytes) {
  std::string all;
  char some[256];
  while (all.size() < bytes) {
    const auto n = ::recv(fd, some, sizeof some, 0);
    if (n <= 0) break;
    all.append(some, static_cast<std::size_t>(n));
  }
  return all;
}

}  // namespace

TEST_CASE("profile --links measures what two processes send each other, for a cluster file") {
  const listening other;
  const auto r = troupe::test::troupe({"profile", "--links", other.address(), "--flows", "2"});
  INFO(r.err);
  REQUIRE(r.status == 0);
  CHECK_THAT(r.out, Contains("inter:") && Contains("  rates: [[65536, ") &&
                        Contains("  flow_rates: [[65536, ") && Contains("rtt_ms"));
  CHECK(other.status() == 0);
  CHECK_THAT(other.out(), Contains("has measured the link"));
  // The snippet is what a cluster file takes.
  std::string indented, line;
  std::istringstream lines{r.out};
  while (std::getline(lines, line)) indented += "        " + line + "\n";
  const troupe::test::scratch in;
  in.write("c.yaml",
           "name: c\ndatacenters:\n  - name: d\n    nodes:\n      - name: a\n        gpu: T4\n"
           "        gpus: 1\n        intra: pcie3\n" +
               indented);
  const auto checked = troupe::test::troupe({"check", in.path("c.yaml")});
  INFO(checked.err);
  CHECK(checked.status == 0);
}

TEST_CASE("profile --links --json has the points, and one flow is one connection") {
  const listening other{"--json"};
  const auto r =
      troupe::test::troupe({"profile", "--links", other.address(), "--flows", "1", "--json"});
  REQUIRE(r.status == 0);
  const auto d = r.document();
  CHECK(d["flows"] == 1);
  CHECK(d["rates"] == d["flow_rates"]);
  REQUIRE(d["rates"].size() >= 2);
  CHECK(d["rates"][0][0] == 65536);
  CHECK(d["rates"][1][0] == 262144);
  CHECK(d["rates"][0][1] > 0);
  CHECK(d["latency_us"] > 0);
  CHECK(json::parse(other.out())["address"] == other.address());
}

TEST_CASE("profile --links says in a sentence that nobody, or somebody else, listens there") {
  troupe::descriptor fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&at), size) == 0);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size);
  const auto address = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  const auto refused = troupe::test::troupe({"profile", "--links", address});
  CHECK(refused.status == 1);
  CHECK_THAT(refused.err, Contains(address) && Contains("refused"));

  REQUIRE(::listen(fd, 4) == 0);
  std::jthread other{[&] {
    const troupe::descriptor c{::accept(fd, nullptr, nullptr)};
    say(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    received(c, 37);
  }};
  const auto wrong = troupe::test::troupe({"profile", "--links", address});
  CHECK(wrong.status == 1);
  CHECK_THAT(wrong.err, Contains("something else listens there"));
}

TEST_CASE("profile --links ends after 10 s where a listening socket never answers") {
  const troupe::descriptor fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&at), size) == 0);
  REQUIRE(::listen(fd, 4) == 0);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size);
  const auto address = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  const auto r = troupe::test::troupe({"profile", "--links", address, "--json"});
  CHECK(r.status == 1);
  CHECK(r.document()["error"] == address + ": no answer in 10 s");
}

TEST_CASE("A listener of profile --links answers strangers with a sentence and waits on") {
  const listening here;
  {
    const auto stranger = connected(here.address());
    say(stranger, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n\r\n");
    CHECK_THAT(received(stranger, 30), Contains("troupe profile --links"));
  }
  {
    // The right line, and more connections than there may be.
    const auto stranger = connected(here.address());
    say(stranger, "troupe profile --links 1\n" + std::string(12, '\xff'));
    CHECK_THAT(received(stranger, 30), Contains("This is `troupe profile"));
  }
  const auto r = troupe::test::troupe({"profile", "--links", here.address(), "--flows", "2"});
  CHECK(r.status == 0);
  CHECK(here.status() == 0);
  CHECK_THAT(here.err(), Contains("is no `troupe profile --links`"));
}

TEST_CASE("a peer that breaks the protocol ends the listener with an error that says so") {
  const listening here;
  const auto peer = connected(here.address());
  const std::string greeting =
      "troupe profile --links 1\n" + std::string(8, '\7') + std::string{"\1\0\0\0", 4};
  say(peer, greeting);
  CHECK(received(peer, greeting.size()) == greeting);
  say(peer, std::string(8, '\x7f'));
  CHECK(here.status() == 1);
  CHECK_THAT(here.err(), Contains("announced a piece of") && Contains("expected at most"));
}

TEST_CASE("profile --links takes an address, or --listen, and checks it") {
  const auto bad = [](std::vector<std::string> words) {
    words.insert(words.begin(), "profile");
    const auto r = troupe::test::troupe(words);
    CHECK(r.status != 0);
    return r.err;
  };
  CHECK_THAT(bad({"--links"}), Contains("--listen"));
  CHECK_THAT(bad({"--links", "a:1", "--listen", "b:1"}), Contains("one of the two"));
  CHECK_THAT(bad({"--links", "nowhere"}), Contains("expected HOST:PORT"));
  CHECK_THAT(bad({"--links", "127.0.0.1:0"}), Contains("expected HOST:PORT"));
  CHECK_THAT(bad({"--links", "127.0.0.1:70000"}), Contains("expected HOST:PORT"));
}
