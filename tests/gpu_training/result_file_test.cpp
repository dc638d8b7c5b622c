#include "gpu_training/result_file.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <stdexcept>

#include "harness/scratch.hpp"

using nlohmann::json;
using troupe::bench::result_file;

TEST_CASE("a file of results has the rows so far after each, and whether they are all") {
  const troupe::test::scratch in;
  const auto path = in.path("results.json");
  const auto read = [&] { return json::parse(std::ifstream{path}); };
  result_file file{path};
  file.put("speed", {{"rows", {1}}}, false);
  CHECK(read() == json{{"speed", {{"rows", {1}}, {"complete", false}}}});
  file.put("speed", {{"rows", {1, 2}}}, true);
  file.put("memory", {{"why", "caf\xe9"}}, false);  // another program's words, in Latin-1
  CHECK(read()["speed"] == json{{"rows", {1, 2}}, {"complete", true}});
  CHECK(read()["memory"]["complete"] == false);
  CHECK_THROWS_AS(result_file{in.path("no/such/folder.json")}.put("speed", {}, true),
                  std::runtime_error);
}

TEST_CASE("a file of results is replaced, never written in place") {
  const troupe::test::scratch in;
  const auto path = in.path("results.json");
  result_file file{path};
  file.put("speed", {{"rows", {1}}}, false);
  std::ifstream before{path};  // as somebody has it who copies it meanwhile
  file.put("speed", {{"rows", {1, 2}}}, false);
  CHECK(json::parse(before)["speed"]["rows"] == json{1});
}
