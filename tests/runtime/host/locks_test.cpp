#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <fstream>
#include <optional>

#include "harness/facts.hpp"
#include "harness/scratch.hpp"
#include "runtime/host/file_lock.hpp"
#include "runtime/zeromq/port_claim.hpp"

using namespace troupe;
using namespace troupe::runtime;

TEST_CASE("a locked file is refused with the holder's pid until its process dies") {
  const troupe::test::scratch where;
  const auto path = where / "lock";
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const auto child = ::fork();
  if (child == 0) {
    const auto lock = file_lock::take(path, "it");
    [[maybe_unused]] const auto notified = ::write(ready[1], lock ? "y" : "n", 1);
    for (;;) ::pause();
  }
  char took = 0;
  REQUIRE(::read(ready[0], &took, 1) == 1);
  CHECK(took == 'y');
  const auto other = file_lock::take(path, "the directory d");
  REQUIRE_FALSE(other);
  CHECK(troupe::test::has_facts(other.error().text, {"the directory d", std::to_string(child)}));
  CHECK(file_lock::holder(path) == child);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK_FALSE(file_lock::holder(path));
  CHECK(file_lock::take(path, "it"));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("a refused lock leaves the holder's pid in place") {
  const troupe::test::scratch where;
  const auto lock = file_lock::take(where / "lock", "it");
  REQUIRE(lock);
  for (int i = 0; i < 2; ++i) CHECK_FALSE(file_lock::take(where / "lock", "it"));
  CHECK(file_lock::holder(where / "lock") == ::getpid());
}

TEST_CASE("claimed ports are refused to others, and are free once the claim ends") {
  constexpr int first = 28300;
  {
    const auto claim = port_claim::take(first, 3);
    REQUIRE(claim);
    const auto other = port_claim::take(first + 2, 3);
    REQUIRE_FALSE(other);
    CHECK(troupe::test::has_facts(other.error().text,
                                  {"28302", "127.0.0.1", std::to_string(::getpid())}));
  }
  CHECK(port_claim::take(first + 2, 3));
  const auto code = [](int first_port, int count) {
    const auto made = port_claim::take(first_port, count);
    return made ? std::optional<reason::kind>{} : made.error().code;
  };
  CHECK(code(65535, 2) == reason::kind::invalid);
  CHECK(code(0, 1) == reason::kind::invalid);
  CHECK(code(1, 1) != reason::kind::invalid);  // though not everybody may listen there
  CHECK(code(65535, 1) != reason::kind::invalid);
}

TEST_CASE("ports directly behind claimed ones can be claimed by another") {
  constexpr int first = 28320;
  const auto behind = port_claim::take(first + 2, 2);
  REQUIRE(behind);
  CHECK(port_claim::take(first, 2));
  CHECK(port_claim::take(first + 4, 2));
}

TEST_CASE("a lock file with invalid content names no holder") {
  const troupe::test::scratch where;
  const auto path = where / "lock";
  const auto lock = file_lock::take(path, "it");
  REQUIRE(lock);
  for (const auto* text : {"", "x", "-5", "0"}) {
    std::ofstream{path} << text;
    CAPTURE(text);
    CHECK_FALSE(file_lock::holder(path));
    const auto other = file_lock::take(path, "it");
    REQUIRE_FALSE(other);
    CHECK(other.error().text == "it is in use by another process");
  }
  std::ofstream{path} << "4194303\n";
  CHECK(file_lock::holder(path) == 4194303);
  CHECK_FALSE(file_lock::holder(where / "none"));
}

TEST_CASE("a port that another program listens on is refused, and the error names the program") {
  constexpr int port = 28310;
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(port);
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0);
  REQUIRE(::listen(fd, 1) == 0);
  const auto claim = port_claim::take(port - 1, 3);
  REQUIRE_FALSE(claim);
  CHECK(claim.error().code == reason::kind::refused);
  CHECK(claim.error().text.find("port 28310") != std::string::npos);
  CHECK(claim.error().text.find("process " + std::to_string(::getpid())) != std::string::npos);
  ::close(fd);
  CHECK(port_claim::take(port - 1, 3));
}
