#include <catch2/catch.hpp>

#include "cli/program.hpp"

// `troupe plan --policy espresso` over several searches.

using namespace troupe::test;
using nlohmann::json;

namespace {

std::vector<std::string> provision(const std::string& job,
                                   const std::vector<std::string>& more = {}) {
  std::vector<std::string> all{"plan",      shipped("jobs/" + job),
                               "--cluster", shipped("clusters/espresso.yaml"),
                               "--policy",  "espresso",
                               "--json"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

TEST_CASE("plan --pareto lists plans by rising cost and falling time, and writes a page of them") {
  const scratch dir;
  const auto page = dir / "cost.html";
  const auto r = troupe::test::troupe(
      provision("llama-1.3b-slo.yaml", {"--pareto", page, "--time-limit", "3"}));
  REQUIRE(r.status == 0);
  const auto d = r.document();
  REQUIRE(d["pareto"].size() > 3);
  bool within = false;
  for (std::size_t i = 0; i < d["pareto"].size(); ++i) {
    const auto& p = d["pareto"][i];
    within = within || p["within_limits"] == true;
    if (i == 0) continue;
    CHECK(p["cost"] > d["pareto"][i - 1]["cost"]);
    CHECK(p["total_s"] < d["pareto"][i - 1]["total_s"]);
  }
  CHECK(within);
  const auto drawn = data_of_page(page);
  CHECK(drawn["kind"] == "cost");
  CHECK(drawn["job"] == "llama-1.3b-slo");
  CHECK(drawn["limits"]["time_s"].is_number());
  REQUIRE(drawn["plans"].size() == d["pareto"].size());
  for (std::size_t i = 0; i < d["pareto"].size(); ++i) {
    const auto &shown = drawn["plans"][i], &p = d["pareto"][i];
    for (const auto* key : {"cost", "total_s", "iteration_s"}) CHECK(shown[key] == p[key]);
    CHECK(shown["meets"] == p["within_limits"]);
    CHECK_FALSE(shown["gpus"].get<std::string>().empty());
    CHECK_FALSE(shown["split"].get<std::string>().empty());
  }
}

TEST_CASE("plan --sweep-slo compares the placers under each limit, and none beats the exact one") {
  const auto r = troupe::test::troupe(
      provision("llama-1.3b-slo.yaml", {"--sweep-slo", "300,500,2000", "--time-limit", "20"}));
  REQUIRE(r.status == 0);
  const auto sweep = r.document()["sweep"];
  REQUIRE(sweep.size() == 3);
  int plans = 0;
  for (const auto& one : sweep)
    for (const auto* name : {"greedy", "sia", "whale", "hph"}) {
      if (one[name].is_null()) continue;
      ++plans;
      CHECK(one["exact"]["cost"].get<double>() <= one[name]["cost"].get<double>() * (1 + 1e-9));
      CHECK(one[name]["total_s"] <= one["slo_s"]);
    }
  CHECK(plans > 5);
}

TEST_CASE("plan --explain-cmr shows the compute-memory ratios, with l_m as given") {
  const auto r = troupe::test::troupe(provision(
      "vit-slo.yaml", {"--placer", "greedy", "--explain-cmr", "--layers-in-memory", "A4000=13"}));
  REQUIRE(r.status == 0);
  const auto rows = r.document()["ratios"];
  REQUIRE_FALSE(rows.empty());
  for (const auto& x : rows) {
    const double l_m = x["max_in_memory"], l_c = x["max_hidden"];
    CHECK(x["ratio"].get<double>() ==
          Approx(x["tflops"].get<double>() / x["memory_gb"].get<double>() * std::max(l_m, l_c) /
                 l_c));
    if (x["gpu"] == "A4000") CHECK(l_m == 13);
  }
  const auto bad = troupe::test::troupe(
      provision("vit-slo.yaml", {"--explain-cmr", "--layers-in-memory", "H100-80GB=13"}));
  CHECK(bad.status == 2);
  CHECK(bad.err.find("H100-80GB") != std::string::npos);
}

TEST_CASE("spot prices lower a plan's cost by the cluster's figures, with interruptions counted") {
  const scratch dir;
  const auto cluster = [&](const std::string& name, const std::string& prices) {
    return dir.write(name,
                     "name: spot\ndatacenters:\n  - name: dc\n    nodes:\n      - {name: a, "
                     "gpu: A30, gpus: 1, count: 8, intra: pcie4, inter: eth10}\n" +
                         prices);
  };
  const auto cost = [&](const std::string& file, std::vector<std::string> more) {
    std::vector<std::string> all{
        "plan", shipped("jobs/vit-slo.yaml"), "--cluster", file, "--policy", "espresso", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    const auto r = troupe::test::troupe(all);
    REQUIRE(r.status == 0);
    return r.document();
  };
  const auto calm = cluster("calm.yaml",
                            "prices: [{gpu: A30, per_hour: 4, spot: {per_hour: 1, "
                            "interruptions_per_hour: 0}}]\n");
  const auto firm = cost(calm, {}), spot = cost(calm, {"--spot"});
  CHECK(spot["cost"].get<double>() == Approx(firm["cost"].get<double>() / 4));
  const auto wild = cluster("wild.yaml",
                            "prices: [{gpu: A30, datacenter: dc, per_hour: 4, spot: {per_hour: 1, "
                            "interruptions_per_hour: 0.5}}]\n");
  const auto risky = cost(wild, {"--spot"});
  CHECK(risky["interruptions"].get<double>() > 0);
  CHECK(risky["cost"].get<double>() > spot["cost"].get<double>());
  CHECK(risky["total_s"].get<double>() ==
        Approx(risky["iteration_s"].get<double>() * 100 +
               risky["interruptions"].get<double>() * (30 + 600 / 2.0)));
}

TEST_CASE("a plan's time is that of its simulated schedule, or of the closed form on request") {
  auto arguments = provision("llama-3b-slo.yaml");
  const auto simulated = troupe::test::troupe(arguments).document();
  CHECK(simulated["iteration_s"].get<double>() > simulated["closed_form_s"].get<double>());
  arguments.push_back("--closed-form");
  const auto closed = troupe::test::troupe(arguments).document();
  CHECK(closed["iteration_s"] == closed["closed_form_s"]);
  CHECK(closed["search"]["simulated"] == 0);
  CHECK(closed["cost"].get<double>() < simulated["cost"].get<double>());
  const double bound = simulated["search"]["bound"].get<double>();
  CHECK(bound > 0);
  CHECK(simulated["search"]["gap"].get<double>() ==
        Approx(1 - bound / simulated["cost"].get<double>()));
  CHECK(bound <= simulated["cost"].get<double>());
}
