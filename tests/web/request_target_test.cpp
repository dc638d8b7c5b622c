#include "web/http/request_target.hpp"

#include <catch2/catch.hpp>

using Catch::Contains;
using troupe::web::parse_target;

TEST_CASE("a request's target has the same path in every spelling") {
  const std::pair<const char*, const char*> same[] = {
      {"/v1/models", "/v1/models"},
      {"/v1/models?after=2", "/v1/models"},
      {"/v1/models/org%2Fname", "/v1/models/org/name"},
      {"/v1/models/org%2fn%61me", "/v1/models/org/name"},
      {"/v1/models/caf%C3%A9", "/v1/models/caf\xC3\xA9"},
      {"/a.b/..c", "/a.b/..c"},
      {"/", "/"},
      {"*", "*"},
      {"http://127.0.0.1:80/v1/models", "/v1/models"},
      {"HTTP://here/v1/models?x", "/v1/models"},
      {"https://here", "/"},
      {"http://here?x=/", "/"}};
  for (const auto& [target, path] : same) {
    INFO(target);
    const auto t = parse_target(target);
    REQUIRE(t);
    CHECK(t->path == path);
  }
  CHECK(parse_target("/a?b=%20&c=/../d")->query == "b=%20&c=/../d");
  CHECK(parse_target("http://here:8000/a")->authority == "here:8000");
  CHECK(parse_target("/a")->authority.empty());
}

TEST_CASE("a target that is no path, or that a proxy may read otherwise, is refused") {
  const std::pair<const char*, const char*> wrong[] = {{"", "begins neither"},
                                                       {"v1/models", "begins neither"},
                                                       {"ftp://here/a", "begins neither"},
                                                       {"http:///a", "no host"},
                                                       {"/a%", "two hexadecimal"},
                                                       {"/a%2", "two hexadecimal"},
                                                       {"/a%zz", "two hexadecimal"},
                                                       {"/a%00b", "control"},
                                                       {"/a%0d%0aB: c", "control"},
                                                       {"/..", "segment"},
                                                       {"/a/../b", "segment"},
                                                       {"/a/%2e%2E/b", "segment"},
                                                       {"/./a", "segment"},
                                                       {"/a/.", "segment"}};
  for (const auto& [target, why] : wrong) {
    INFO(target);
    const auto t = parse_target(target);
    REQUIRE_FALSE(t);
    CHECK_THAT(t.error().text, Contains(why));
  }
}
