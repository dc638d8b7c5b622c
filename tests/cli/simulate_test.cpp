#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "cli/program.hpp"

namespace fs = std::filesystem;
using namespace troupe::test;
using nlohmann::json;

namespace {

json simulated(const std::vector<std::string>& more) {
  std::vector<std::string> words{"simulate", "--cluster", shipped("clusters/frenzy-sim.yaml"),
                                 "--json"};
  words.insert(words.end(), more.begin(), more.end());
  const auto r = troupe::test::troupe(words);
  INFO(r.err);
  REQUIRE(r.status == 0);
  return json::parse(r.out);
}

}  // namespace

TEST_CASE("simulate prints the documented keys, all jobs end, and a seed repeats its fingerprint") {
  const std::vector<std::string> day{"--trace", shipped("traces/philly-day.csv"), "--policy",
                                     "frenzy,fcfs"};
  const auto first = simulated(day), second = simulated(day);
  CHECK(first["jobs"] == 465);
  REQUIRE(first["policies"].size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& p = first["policies"][i];
    for (const auto* key :
         {"policy", "finished", "failed", "average_jct_s", "p50_jct_s", "p99_jct_s",
          "average_queue_s", "makespan_s", "average_throughput", "gpu_utilization",
          "restarts_per_job", "oom_failures", "decision_us", "fingerprint", "wall_s"}) {
      INFO(key);
      CHECK(p.contains(key));
    }
    CHECK(p["finished"].get<int>() + p["failed"].get<int>() == 465);
    CHECK(p["fingerprint"] == second["policies"][i]["fingerprint"]);
  }
  CHECK(first["policies"][0]["oom_failures"] == 0);
}

TEST_CASE("simulate writes machine-readable files and a picture") {
  const scratch dir;
  simulated({"--trace", shipped("traces/philly-day.csv"), "--out", dir.path()});
  for (const auto* file : {"result.json", "usage.html", "jobs-troupe.csv", "usage-troupe.csv"}) {
    INFO(file);
    CHECK(fs::file_size(dir.path(file)) > 1000 * (std::string{file} != "result.json"));
  }
  std::ifstream in(dir.path("usage.html"));
  const std::string page{std::istreambuf_iterator<char>{in}, {}};
  CHECK(page.find("<svg") != std::string::npos);
  CHECK(page.find("http") == std::string::npos);  // self-contained
  for (const auto* part : {"name='viewport'", ">GPUs held<", ">jobs waiting<", "class='hover'",
                           "GPUs held, ", "time since the first job, "})
    CHECK(page.find(part) != std::string::npos);
  // Ticks at whole numbers of the axis's unit.
  std::size_t ticks = 0;
  for (auto at = page.find("class='time'"); at != std::string::npos;
       at = page.find("class='time'", at + 1)) {
    const auto begin = page.find('>', at) + 1;
    const auto label = page.substr(begin, page.find('<', begin) - begin);
    if (label.find("time") != std::string::npos) continue;
    CHECK(label.find('.') == std::string::npos);
    ++ticks;
  }
  CHECK(ticks >= 4);
}

TEST_CASE(
    "on the loaded testbed Frenzy's average completion time is 12 % under opportunistic's and "
    "Sia's") {
  const auto r = troupe::test::troupe(
      {"simulate", "--cluster", shipped("clusters/frenzy-testbed.yaml"), "--trace",
       shipped("traces/philly-day.csv"), "--policy", "frenzy,opportunistic,sia", "--json"});
  REQUIRE(r.status == 0);
  const auto policies = json::parse(r.out)["policies"];
  const double frenzy = policies[0]["average_jct_s"];
  CHECK(frenzy < 0.88 * policies[1]["average_jct_s"].get<double>());
  CHECK(frenzy < 0.88 * policies[2]["average_jct_s"].get<double>());
  CHECK(policies[0]["failed"] == 0);
  CHECK(policies[0]["oom_failures"] == 0);
}

TEST_CASE("an unknown policy is bad usage, and a missing controller is an error with its reason") {
  const auto bad =
      troupe::test::troupe({"simulate", "--cluster", shipped("clusters/frenzy-sim.yaml"), "--trace",
                            shipped("traces/philly-day.csv"), "--policy", "frenzzy"});
  CHECK(bad.status == 2);
  CHECK(bad.err.find("frenzzy") != std::string::npos);
  const auto nobody = troupe::test::troupe({"queue", "--state", "/nonexistent"});
  CHECK(nobody.status == 1);
  CHECK(nobody.err.find("/nonexistent/controller.address") != std::string::npos);
}
