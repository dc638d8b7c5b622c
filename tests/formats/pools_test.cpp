#include <catch2/catch.hpp>

#include <string>

#include "formats/load/load.hpp"
#include "harness/files.hpp"

// A pool of Sailor's: datacenters with curves at every link.

using namespace troupe;

TEST_CASE("Sailor's pools with curves and prices are read as they are") {
  const auto folder = test::shared_data("sailor/planned");
  if (!folder) {
    WARN("skipped: this checkout has no ../shared/data/sailor");
    return;
  }
  for (const std::string name : {"g160", "h32", "m512", "x128", "x512"}) {
    const auto pool = test::loaded(formats::load_cluster(*folder + "/" + name + "-opt-350.yaml"));
    CHECK(prices_traffic(pool) == (pool.datacenters.size() > 1));
    for (const auto& w : pool.wan) CHECK(w.price_per_gb.value_or(0) > 0);
  }
}

TEST_CASE("a pool with curves at every link and prices of traffic is read") {
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
  CHECK_FALSE(prices_traffic(*pool));
  CHECK(traffic_price_per_gb(*pool, 0, 1) == 0);
  const auto priced = read(", price_per_gb: 0.01");
  if (!priced) FAIL(priced.error().text);
  CHECK(prices_traffic(*priced));
  CHECK(traffic_price_per_gb(*priced, 0, 1) == 0.01);
  CHECK(traffic_price_per_gb(*priced, 1, 0) == 0.01);
  const auto unequal = read(", price_per_gb: 0.01, price_per_gb_back: 0.02");
  if (!unequal) FAIL(unequal.error().text);
  CHECK(traffic_price_per_gb(*unequal, 0, 1) == 0.01);
  CHECK(traffic_price_per_gb(*unequal, 1, 0) == 0.02);
}
