#include "web/http/browser_requests.hpp"

#include <catch2/catch.hpp>

using namespace troupe::web;

TEST_CASE("a Host field names this machine only as localhost or a loopback address") {
  for (const char* host : {"", "localhost", "LOCALHOST", "localhost.", "localhost:8000",
                           "127.0.0.1", "127.0.0.9:80", "[::1]", "[::1]:8080", "localhost:"}) {
    CAPTURE(host);
    CHECK(is_local_host(host));
  }
  for (const char* host :
       {"evil.example", "evil.example:8000", "[::1].evil", "[::1]evil:80", "localhost:80@evil",
        "localhost.evil", "127.0.0.1.evil", "127.1", "0x7f.0.0.1", "2130706433", "0.0.0.0", "[::]",
        "::1", "[::1", "localhost:x", "localhost:123456", " localhost", "user@localhost",
        "192.168.0.1"}) {
    CAPTURE(host);
    CHECK_FALSE(is_local_host(host));
  }
}

TEST_CASE("a request is cross-origin when the browser says so") {
  const auto asked = [](std::string origin, std::string fetch_site) {
    http_request r;
    r.host = "localhost:8000";
    r.origin = std::move(origin);
    r.fetch_site = std::move(fetch_site);
    return is_cross_origin(r);
  };
  CHECK_FALSE(asked("", ""));
  CHECK_FALSE(asked("http://localhost:8000", ""));
  CHECK_FALSE(asked("http://localhost:8000", "same-origin"));
  CHECK_FALSE(asked("", "none"));
  CHECK(asked("", "cross-site"));
  CHECK(asked("", "same-site"));  // another port of this machine
  CHECK(asked("http://localhost:8000", "cross-site"));
  CHECK(asked("http://localhost:9000", ""));
  CHECK(asked("http://evil.example", ""));
  CHECK(asked("null", ""));
}
