#include <catch2/catch.hpp>

#include "web/http/routes.hpp"

// A server's paths as a table.

using namespace troupe::web;

namespace {

struct asked_server {
  std::string asked;
};

std::span<const route<asked_server>> table() {
  static const route<asked_server> all[] = {
      {{"/open", "GET", false}, [](asked_server& s, const routed_request&) { s.asked = "open"; }},
      {{"/jobs/#/why"}, [](asked_server& s, const routed_request& q) { s.asked = q.argument; }},
      {{"/write", "POST"}, [](asked_server& s, const routed_request&) { s.asked = "write"; }}};
  return all;
}

http_request asked(const std::string& method, const std::string& path) {
  http_request r;
  r.method = method;
  r.path = path;
  return r;
}

int status_of(const std::string& method, const std::string& path, bool has_key) {
  const auto why = refusal_of(asked(method, path), find_route(table(), path).to, has_key);
  return why ? why->status : 200;
}

}  // namespace

TEST_CASE("a path matches a literal, a number in its place, or a rest that may have slashes") {
  CHECK(match_path("/v1/models", "/v1/models") == "");
  CHECK_FALSE(match_path("/v1/models", "/v1/models/"));
  CHECK(match_path("/v1/models/*", "/v1/models/") == "");
  CHECK(match_path("/v1/models/*", "/v1/models/someone/small") == "someone/small");
  CHECK_FALSE(match_path("/v1/models/*", "/v1/models"));
  CHECK(match_path("/jobs/#", "/jobs/7") == "7");
  CHECK(match_path("/jobs/#/why", "/jobs/18446744073709551615/why") == "18446744073709551615");
  for (const auto* path : {"/jobs/", "/jobs/x", "/jobs/-1", "/jobs/7x", "/jobs/7/", "/jobs/7/why",
                           "/jobs/18446744073709551616"}) {
    INFO(path);
    CHECK_FALSE(match_path("/jobs/#", path));
  }
  CHECK_FALSE(match_path("/jobs/#/why", "/jobs/7/whyever"));
}

TEST_CASE("an unknown path is 404 before a wrong method is 405, and that before a missing key") {
  CHECK(status_of("DELETE", "/none", false) == 404);
  CHECK(status_of("DELETE", "/write", false) == 405);
  CHECK(status_of("POST", "/write", false) == 401);
  CHECK(status_of("POST", "/write", true) == 200);
  CHECK(status_of("HEAD", "/jobs/7/why", true) == 200);
  CHECK(status_of("HEAD", "/write", true) == 405);
  CHECK(status_of("GET", "/open", false) == 200);

  const auto why =
      refusal_of(asked("PUT", "/write"), find_route(table(), "/write").to, true, ", OPTIONS");
  REQUIRE(why);
  CHECK(why->sentence == "method PUT is not allowed for '/write'");
  CHECK(why->fields == http_fields{{"Allow", "POST, OPTIONS"}});
}

TEST_CASE("a handler gets the variable part of its path") {
  asked_server s;
  const auto r = asked("GET", "/jobs/7/why");
  const auto [to, argument] = find_route(table(), r.path);
  REQUIRE(to);
  to->answer(s, {r, argument, nullptr});
  CHECK(s.asked == "7");
}
