#include <catch2/catch.hpp>

#include <string>

#include "formats/load/load.hpp"
#include "harness/files.hpp"

// A pool of Sailor's: datacenters with curves at every link.

using namespace troupe;

TEST_CASE("a pool with curves at every link is read, and a price of traffic is refused by name") {
  const std::string curves =
      "rates: [[65536, 18.4], [8388608, 48.6]], flow_rates: [[65536, 7.4], [8388608, 12]]";
  const auto node = [&](const std::string& name) {
    return "  - name: " + name + "\n    nodes:\n      - {name: " + name +
           "-n, gpu: A100-40GB, gpus: 4, count: 2, intra: {gbps: 1940, latency_us: 5},\n"
           "         inter: {gbps: 48, latency_us: 50, " +
           curves + "}}\n";
  };
  const auto read = [&](const std::string& more) {
    return formats::load_cluster(test::temporary(
        "pool.yaml", "name: pool\ndatacenters:\n" + node("a") + node("b") +
                         "wan:\n  - {between: [a, b], rtt_ms: 1, node_gbps: 48, "
                         "connection_gbps: 0, " +
                         curves + more + "}\ngpus:\n  A100-40GB: {price_per_hour: 3.74}\n"));
  };
  const auto pool = read("");
  if (!pool) FAIL(pool.error().text);
  CHECK(pool->nodes.size() == 4);
  REQUIRE(pool->wan.size() == 1);
  CHECK(pool->wan[0].flow_rates->size() == 2);
  const auto priced = read(", price_per_gb: 0.01");
  REQUIRE_FALSE(priced);
  CHECK_THAT(priced.error().text, Catch::Contains("wan[0]: unknown key 'price_per_gb'"));
}
