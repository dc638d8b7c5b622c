#include "text/json/ordered_json.hpp"

#include <catch2/catch.hpp>
#include <string>

namespace ordered_json_tests {

using namespace troupe::gpu;

std::string written(std::string_view text, json_limits l = {8, 4},
                    std::optional<std::string_view> member = {}) {
  const auto d = parse_in_order(text, l, member);
  return d ? d->dump() : "none";
}

TEST_CASE("names of objects keep the order of the text, to their limits") {
  CHECK(written(R"({"b": [1, {"z": null, "a": "x"}, []], "a": {"c": {}}, "d": -1.5})") ==
        R"({"b":[1,{"z":null,"a":"x"},[]],"a":{"c":{}},"d":-1.5})");
  CHECK(written("[true, {}]") == "[true,{}]");
  CHECK(written("7") == "7");
  CHECK(written(R"({"a": 1, "b": 2, "a": 3})") == R"({"a":3,"b":2})");
  CHECK(written(R"({"a": 1, "b": 2, "c": 3, "d": 4})") != "none");
  CHECK(written(R"({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5})") == "none");
  CHECK(written("[[[[[[[[1]]]]]]]]") != "none");
  CHECK(written("[[[[[[[[[1]]]]]]]]]") == "none");
  for (const char* bad : {"", "{", "[1,]", "{\"a\"}", "nul", "[1] 2"})
    CHECK(written(bad) == "none");
}

TEST_CASE("a member is read alone, and others are bounded in their levels only") {
  const std::string text = R"({"big": {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5},
    "m": {"y": [{"m": 1}], "x": 2}, "n": {}})";
  CHECK(written(text, {8, 4}, "m") == R"({"y":[{"m":1}],"x":2})");
  CHECK(written(text, {8, 4}, "n") == "{}");
  CHECK(written(text, {8, 4}, "big") == "none");
  CHECK(written(text, {8, 4}, "y") == "none");
  CHECK(written(R"({"m": 1, "n": 2, "m": [3]})", {8, 4}, "m") == "[3]");
  CHECK(written(R"(["m", 1])", {8, 4}, "m") == "none");
}

TEST_CASE("many values take time in proportion to their number") {
  std::string all = "{\"m\": [{}";
  for (int i = 0; i < 300'000; ++i) all += ",{}";
  all += "]}";
  const auto d = parse_in_order(all, {8, 4}, "m");
  REQUIRE(d);
  CHECK(d->size() == 300'001);
}

}  // namespace ordered_json_tests
