#include <fmt/format.h>
#include <iterator>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "cli/program.hpp"
#include "harness/shell.hpp"

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
  const std::vector<std::string> day{"--trace",    shipped("traces/philly-day.csv"),
                                     "--policy",   "frenzy,fcfs",
                                     "--workload", "frenzy"};
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
  simulated(
      {"--trace", shipped("traces/philly-day.csv"), "--workload", "frenzy", "--out", dir.path()});
  for (const auto* file : {"result.json", "usage.html", "jobs-troupe.csv", "usage-troupe.csv"}) {
    INFO(file);
    CHECK(fs::file_size(dir.path(file)) > 1000 * (std::string{file} != "result.json"));
  }
  const auto page = data_of_page(dir.path("usage.html"));
  std::ifstream in(dir.path("result.json"));
  const auto result = json::parse(in)["policies"];
  CHECK(page["kind"] == "usage");
  CHECK(page["span_s"].get<double>() > 86400);
  REQUIRE(page["policies"].size() == result.size());
  const auto& shown = page["policies"][0];
  for (const auto* key :
       {"policy", "average_jct_s", "average_queue_s", "gpu_utilization", "failed", "oom_failures"})
    CHECK(shown[key] == result[0][key]);
  // The mean of the curve is the table's figure for the whole time.
  double held = 0;
  for (const auto& n : shown["held"]) {
    CHECK(n <= page["gpus"]);
    held += n.get<double>() / static_cast<double>(shown["held"].size());
  }
  CHECK(held == Approx(result[0]["gpu_utilization"].get<double>() * page["gpus"].get<double>())
                    .epsilon(0.02));
  CHECK(shown["waiting"].size() == shown["held"].size());
  CHECK(*std::max_element(shown["waiting"].begin(), shown["waiting"].end()) > 0);
  const auto& jct_s = shown["jct_cdf"]["jct_s"];
  CHECK(jct_s.size() == 200);
  CHECK(std::is_sorted(jct_s.begin(), jct_s.end()));
  CHECK(shown["jct_cdf"]["fraction"].back() == 1.0);
}

TEST_CASE(
    "on the loaded testbed Frenzy's average completion time is 11 % under opportunistic's and "
    "Sia's") {
  const auto r =
      troupe::test::troupe({"simulate", "--cluster", shipped("clusters/frenzy-testbed.yaml"),
                            "--trace", shipped("traces/philly-day.csv"), "--workload", "frenzy",
                            "--policy", "frenzy,opportunistic,sia", "--json"});
  REQUIRE(r.status == 0);
  const auto policies = json::parse(r.out)["policies"];
  const double frenzy = policies[0]["average_jct_s"];
  CHECK(frenzy < 0.89 * policies[1]["average_jct_s"].get<double>());
  CHECK(frenzy < 0.89 * policies[2]["average_jct_s"].get<double>());
  CHECK(policies[0]["failed"] == 0);
  CHECK(policies[0]["oom_failures"] == 0);
}

TEST_CASE("a row that fits no plan of a policy fails alone, with what it needs") {
  const scratch dir;
  const auto cluster = dir.write(
      "small.yaml",
      "name: small\ndatacenters: [{name: dc, nodes: [{name: a, gpu: V100-16GB, gpus: 1, count: 4, "
      "intra: nvlink, inter: ib100}]}]\n");
  const auto trace = dir.write("t.csv",
                               "job_id,submit_s,duration_s,gpus,gpu_type,model,global_batch\n"
                               "small,0,600,1,,gpt2-124m,1\nlarge,1,600,1,,gpt2-1.5b,1\n"
                               "absent,2,600,1,H100-80GB,gpt2-124m,1\n");
  const auto r = troupe::test::troupe(
      {"simulate", "--cluster", cluster, "--trace", trace, "--policy", "frenzy,troupe", "--json"});
  INFO(r.err);
  REQUIRE(r.status == 0);
  const auto d = r.document();
  const auto& frenzy = d["policies"][0];
  CHECK(frenzy["finished"] == 1);
  CHECK(frenzy["failed"] == 2);
  CHECK(frenzy["failures"][0]["job"] == "large");
  const auto why = frenzy["failures"][0]["reason"].get<std::string>();
  CHECK(why.find("needs at least") != std::string::npos);
  CHECK(why.find("the largest here has 16 GB") != std::string::npos);
  CHECK(frenzy["failures"][1]["reason"].get<std::string>().find("H100-80GB") != std::string::npos);
  // Its pipelines hold it.
  CHECK(d["policies"][1]["finished"] == 2);
  CHECK(d["policies"][1]["failures"].size() == 1);
  CHECK(d["invented_models"] == 0);
  const auto table = troupe::test::troupe(
      {"simulate", "--cluster", cluster, "--trace", trace, "--policy", "frenzy"});
  CHECK(table.out.find("with their own models (frenzy)") != std::string::npos);
  CHECK(table.out.find("the largest here has 16 GB") != std::string::npos);
}

TEST_CASE("several seeds give each figure's mean and spread, and all their jobs' distribution") {
  const scratch dir;
  const auto trace = dir.write("t.csv",
                               "job_id,submit_s,duration_s,gpus\n"
                               "a,0,600,1\nb,10,900,4\nc,20,300,2\nd,30,1200,1\n");
  const auto d = simulated({"--trace", trace, "--workload", "frenzy", "--policy", "frenzy,sia",
                            "--seeds", "1-2,5", "--out", dir.path("out")});
  CHECK(d["seeds"] == json::array({1, 2, 5}));
  CHECK(d["invented_models"] == 4);
  for (const auto& p : d["policies"]) {
    REQUIRE(p["runs"].size() == 3);
    double sum = 0, squares = 0;
    for (const auto& run : p["runs"]) sum += run["average_jct_s"].get<double>();
    for (const auto& run : p["runs"])
      squares += std::pow(run["average_jct_s"].get<double>() - sum / 3, 2);
    CHECK(p["average_jct_s"].get<double>() == Approx(sum / 3));
    CHECK(p["spread"]["average_jct_s"].get<double>() == Approx(std::sqrt(squares / 2)));
    CHECK(p["spread"]["average_jct_s"].get<double>() > 0);
    CHECK(p["runs"][2]["seed"] == 5);
  }
  std::ifstream in(dir.path("out/result.json"));
  const auto saved = json::parse(in);
  for (const auto& p : saved["policies"]) {
    const auto& cdf = p["jct_cdf"];
    REQUIRE(cdf["jct_s"].size() == 12);
    CHECK(cdf["fraction"][2].get<double>() == Approx(0.25));
    CHECK(cdf["fraction"][11] == 1.0);
    CHECK(std::is_sorted(cdf["jct_s"].begin(), cdf["jct_s"].end()));
  }
  CHECK(fs::exists(dir.path("out/seed-5/jobs-sia.csv")));
  const auto table =
      troupe::test::troupe({"simulate", "--cluster", shipped("clusters/frenzy-sim.yaml"), "--trace",
                            trace, "--workload", "frenzy", "--seeds", "1,3"});
  CHECK(table.out.find("with invented models (frenzy)") != std::string::npos);
  CHECK(table.out.find("seeds 1, 3: mean") != std::string::npos);
  for (const auto* bad : {"1-", "3-1", "1,1", "x", "1-5000", "1,,2"}) {
    INFO(bad);
    CHECK(troupe::test::troupe({"simulate", "--cluster", shipped("clusters/frenzy-sim.yaml"),
                                "--trace", trace, "--seeds", bad})
              .status == 2);
  }
}

TEST_CASE("a policy's options change what it does, and unknown ones are refused by name") {
  const scratch dir;
  std::string rows = "job_id,submit_s,duration_s,gpus\n";
  for (int i = 0; i < 30; ++i) rows += fmt::format("j{},{},{},{}\n", i, 40 * i, 900 + 70 * i, 1);
  const auto trace = dir.write("t.csv", rows);
  const auto jct = [&](const std::vector<std::string>& options) {
    std::vector<std::string> words{"--trace",   trace,        "--policy",
                                   "sia,crius", "--workload", "frenzy"};
    for (const auto& o : options) words.insert(words.end(), {"--policy-option", o});
    const auto d = simulated(words);
    return std::pair{d["policies"][0]["average_jct_s"].get<double>(),
                     d["policies"][1]["average_jct_s"].get<double>()};
  };
  const auto usual = jct({});
  CHECK(jct({"sia.change=0.01", "crius.stay_restarts=10"}) == usual);
  const auto other = jct({"sia.change=5", "crius.stay_restarts=200"});
  CHECK(other.first != usual.first);
  CHECK(other.second != usual.second);

  const std::pair<const char*, const char*> cases[] = {
      {"sia.chang=1", "sia has no option 'chang'; it has fairness_power"},
      {"sia.change=much", "expected POLICY.NAME=NUMBER"},
      {"change=1", "expected POLICY.NAME=NUMBER"},
      {"sia.min_restart_factor=2", "found 2, expected a number from 0 to 1"},
      {"crius.search_depth=1.5", "expected a whole number"},
      {"frenzy.x=1", "frenzy is not among the policies (sia, crius, fcfs)"},
      {"fcfs.x=1", "fcfs has no options"},
  };
  for (const auto& [option, words] : cases) {
    const auto r = troupe::test::troupe({"simulate", "--cluster",
                                         shipped("clusters/frenzy-sim.yaml"), "--trace", trace,
                                         "--policy", "sia,crius,fcfs", "--policy-option", option});
    INFO(option << ": " << r.err);
    CHECK(r.status == 2);
    CHECK(r.err.find(words) != std::string::npos);
  }
}

TEST_CASE("a cluster file sets options of policies, and the command line counts before it") {
  const scratch dir;
  std::string rows = "job_id,submit_s,duration_s,gpus\n";
  for (int i = 0; i < 30; ++i) rows += fmt::format("j{},{},{},{}\n", i, 40 * i, 900 + 70 * i, 1);
  const auto trace = dir.write("t.csv", rows);
  std::ifstream in{shipped("clusters/frenzy-sim.yaml")};
  const std::string shipped_text{std::istreambuf_iterator<char>{in}, {}};
  const auto run = [&](const std::string& more, const std::vector<std::string>& options = {}) {
    const auto file = dir.write("c.yaml", shipped_text + more);
    std::vector<std::string> words{"simulate", "--json",   "--cluster", file,         "--trace",
                                   trace,      "--policy", "sia,fcfs",  "--workload", "frenzy"};
    for (const auto& o : options) words.insert(words.end(), {"--policy-option", o});
    return troupe::test::troupe(words);
  };
  const auto jct = [&](const std::string& more, const std::vector<std::string>& options = {}) {
    return run(more, options).document()["policies"][0]["average_jct_s"].get<double>();
  };
  const std::string changed = "policy_options:\n  sia: {change: 5}\n";
  CHECK(jct(changed) == jct("", {"sia.change=5"}));
  CHECK(jct(changed) != jct(""));
  CHECK(jct(changed, {"sia.change=0.01"}) == jct(""));
  // Options for policies that do not run, and for plug-ins that are not there, change nothing.
  CHECK(run("policy_options:\n  titan: {gap: 0.1}\n  mine: {x: 1}\n").status == 0);

  const std::pair<const char*, const char*> cases[] = {
      {"  sia: {change: much}\n", "policy_options.sia.change"},
      {"  sia: {gap: 2}\n", "policy_options.sia.gap: found 2, expected a number from 0 to 1"},
      {"  titan: {gap: 2}\n", "policy_options.titan.gap: found 2, expected a number from 0 to 1"},
      {"  sia: {gaps: 0}\n", "sia has no option 'gaps'; it has fairness_power"},
      {"  sia: 5\n", "policy_options.sia"},
  };
  for (const auto& [lines, words] : cases) {
    const auto r = run(std::string{"policy_options:\n"} + lines);
    INFO(lines << ": " << r.err);
    CHECK(r.status == 2);
    CHECK(r.err.find(words) != std::string::npos);
    CHECK(r.err.find("c.yaml:") != std::string::npos);
  }
}

TEST_CASE("a trace of durations without models is replayed as it is, unless models are asked for") {
  const scratch dir;
  const auto jct = [&](const std::string& columns, const std::string& fields,
                       const std::vector<std::string>& more = {}) {
    const auto trace =
        dir.write("t.csv", "job_id,submit_s,duration_s,gpus" + columns + "\na,0,1000,1" + fields +
                               "\nb,5000,7200,2" + fields + "\n");
    std::vector<std::string> words{"--trace", trace, "--policy", "fcfs"};
    words.insert(words.end(), more.begin(), more.end());
    const auto d = simulated(words);
    return std::pair{d["workload"].get<std::string>(),
                     d["policies"][0]["average_jct_s"].get<double>()};
  };
  constexpr double alone_s = 30 + (1000 + 7200) / 2.0;
  CHECK(jct("", "") ==
        std::pair{std::string{"as-is"}, jct("", "", {"--workload", "as-is"}).second});
  CHECK(jct("", "").second == Approx(alone_s).epsilon(1e-9));
  CHECK(jct("", "", {"--workload", "frenzy"}).first == "frenzy");
  CHECK(jct("", "", {"--parallelism", "adaptive"}).first == "frenzy");
  CHECK(jct(",model", ",gpt2-124m").first == "frenzy");
  CHECK(jct(",global_batch", ",8").first == "frenzy");
  // A type is a duration's own.
  CHECK(jct(",gpu_type", ",A100-40GB").first == "as-is");
  const auto trace = dir.write("t.csv", "job_id,submit_s,duration_s,gpus\na,0,1000,1\n");
  const auto table =
      troupe::test::troupe({"simulate", "--cluster", shipped("clusters/frenzy-sim.yaml"), "--trace",
                            trace, "--policy", "fcfs,frenzy"});
  CHECK(table.out.find("as-is; --workload frenzy invents models") != std::string::npos);
  CHECK(table.out.find("all with pipelines") == std::string::npos);  // no empty second table
}

TEST_CASE("as-is and measured speeds are options of simulate, one or the other") {
  const scratch dir;
  const auto trace = dir.write("t.csv",
                               "job_id,submit_s,duration_s,gpus,model,iterations\n"
                               "a,0,1000,1,LM,300\nb,5000,1000,2,LM,300\n");
  const auto speeds =
      dir.write("s.json",
                R"json({"a100": {"('LM', 1)": {"null": 3}, "('LM', 2)": {"null": 5}},
                                    "rtx6000": {"('LM', 1)": {"null": 1}}})json");
  const auto d = simulated({"--trace", trace, "--policy", "fcfs", "--throughputs", speeds});
  CHECK(d["policies"][0]["average_jct_s"].get<double>() ==
        Approx(30 + (300.0 / 3 + 300.0 / 5) / 2).epsilon(1e-9));
  CHECK(simulated({"--trace", trace, "--policy", "fcfs", "--workload",
                   "as-is"})["policies"][0]["average_jct_s"]
            .get<double>() == Approx(1030).epsilon(1e-9));
  const std::vector<std::string> both{"simulate", "--cluster",  shipped("clusters/frenzy-sim.yaml"),
                                      "--trace",  trace,        "--throughputs",
                                      speeds,     "--workload", "as-is"};
  CHECK(troupe::test::troupe(both).status == 2);
}

namespace {

/// A program of 160 samples/s on one GPU and 300 on two, which takes 5 s to start and 0.5 s to
/// save.
const char* const resizable = R"(
name: resizable
model: gpt2-124m
global_batch: 16
iterations: 4000
gpus: 1
command: [program]
elastic:
  gpus: [1, 2]
  start_s: 5
  save_s: 0.5
  rates:
    - {gpu: A100-80GB, gpus: 1, samples_per_s: 160}
    - {gpu: A100-80GB, gpus: 2, samples_per_s: 300}
)";
const char* const two_nodes = R"(
name: two
datacenters:
  - {name: here, nodes: [{name: a, gpu: A100-80GB, gpus: 1, intra: pcie3, inter: eth10, count: 2}]}
settings: {restart_s: 1, preempt_grace_s: 20}
)";

}  // namespace

TEST_CASE("simulate runs job files instead of a trace, each submitted at its own time") {
  const scratch dir;
  dir.write("cluster.yaml", two_nodes);
  dir.write("resizable.yaml", resizable);
  dir.write("short@2.yaml",
            "{name: short, model: gpt2-124m, global_batch: 8, iterations: 200, gpus: 1, "
            "max_gpus: 1, command: [program], elastic: {gpus: same, start_s: 1, rates: [{gpu: "
            "A100-80GB, gpus: 1, samples_per_s: 40}]}}");
  const auto r =
      troupe::test::troupe({"simulate", "--cluster", dir.path("cluster.yaml"), "--job",
                            dir.path("resizable.yaml"), "--job", dir.path("short@2.yaml") + "@130",
                            "--policy", "crius,fcfs", "--out", dir.path("out"), "--json"});
  INFO(r.err);
  REQUIRE(r.status == 0);
  const auto policies = json::parse(r.out)["policies"];
  CHECK(policies[0]["finished"] == 2);
  // It shrinks for the short job, and grows again; first come, first served lets that one wait.
  CHECK(policies[0]["scale_downs"] == 1);
  CHECK(policies[0]["scale_ups"] == 1);
  CHECK(policies[1]["restarts_per_job"] == 0);
  const auto rows = read_file(dir.path("out/jobs-fcfs.csv"));
  CHECK(rows.find("resizable,finished,0.000,0.000") != std::string::npos);
  CHECK(rows.find("short,finished,130.000") != std::string::npos);
}

TEST_CASE("simulate takes a trace or job files, and refuses jobs that are more than a program") {
  const scratch dir;
  dir.write("cluster.yaml", two_nodes);
  dir.write("job.yaml", resizable);
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"simulate", "--cluster", dir.path("cluster.yaml"), "--json"});
    return troupe::test::troupe(more);
  };
  CHECK(run({}).status == 2);
  CHECK(run({"--job", dir.path("job.yaml"), "--trace", shipped("traces/philly-day.csv")}).status ==
        2);
  CHECK(run({"--job", dir.path("job.yaml@x")}).status == 2);
  const auto training = run({"--job", shipped("jobs/demo-training.yaml")});
  CHECK(training.status == 2);
  CHECK(training.out.find("found a job with 'train'") != std::string::npos);
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
