#include <fstream>

#include "planners/policy/policy.hpp"
#include "processes/detached.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/process/process.hpp"

// Jobs from the command line: submit, wait, read logs.

using namespace troupe;
using namespace troupe::test;

namespace {

const std::string two_nodes_of_three = R"(name: six
settings: {restart_s: 0}
datacenters:
  - name: here
    nodes: [{name: n, gpu: A100-40GB, gpus: 3, count: 2, intra: nvlink, inter: ib100}]
)";

/// Runs on both nodes of the cluster, or on one.
std::string script_job(const scratch& where, const std::string& name, const std::string& script) {
  return where.write(name + ".yaml",
                     "name: " + name + "\nmodel: gpt2-124m\nglobal_batch: 4\ncommand: [sh, -c, '" +
                         script + "']\n");
}

std::string printed_in(const std::string& file) {
  std::ifstream in{file};
  return {std::istreambuf_iterator<char>{in}, {}};
}

}  // namespace

TEST_CASE("submit --wait exits with the program's status, and wait lists the finished jobs") {
  detached cluster;
  REQUIRE(cluster.said.status == 0);
  const auto good = script_job(cluster.where, "good", "echo fine");
  const auto bad = script_job(cluster.where, "bad", "exit 3");
  CHECK(cluster.ask({"submit", good, "--wait"}).status == 0);
  const auto failed = cluster.ask({"submit", good, bad, "--wait", "--json"});
  CHECK(failed.status == 3);
  const auto jobs = failed.document().at("jobs");
  REQUIRE(jobs.size() == 2);
  for (const auto& j : jobs) {
    CHECK(j.at("state") == (j.at("name") == "bad" ? "failed" : "finished"));
    CHECK(j.at("exit_code") == (j.at("name") == "bad" ? 3 : 0));
  }
  const auto killed = script_job(cluster.where, "killed", "kill -9 $$");
  CHECK(cluster.ask({"submit", killed, "--wait"}).status == 137);
  CHECK_THAT(cluster.ask({"explain", "4"}).out, Catch::Contains("exit status 137 (SIGKILL)"));
  CHECK(cluster.ask({"wait", "1", "2"}).status == 0);
  CHECK(cluster.ask({"wait", "1", "3"}).status == 1);
  const auto none = cluster.ask({"wait", "99", "--json"});
  CHECK(none.status == 1);
  CHECK(none.document().at("code") == "unknown");
}

TEST_CASE("wait waits for a running job, and exits with 1 if it is cancelled") {
  detached cluster;
  REQUIRE(cluster.said.status == 0);
  REQUIRE(cluster.ask({"submit", script_job(cluster.where, "long", "sleep 1000")}).status == 0);
  std::vector<std::string> words{"wait", "1", "--state", cluster.state};
  words.insert(words.begin(), TROUPE_PROGRAM);
  runtime::process_options o;
  o.command = words;
  auto waiting = runtime::process::start(o);
  REQUIRE(waiting);
  runtime::pause(0.5);
  CHECK_FALSE((*waiting)->poll());
  const auto first = cluster.ask({"cancel", "1"}), second = cluster.ask({"cancel", "1"});
  CHECK(first.status == 0);
  CHECK(first.out == "job 1 cancelled\n");
  CHECK(second.status == 0);
  std::optional<int> status;
  REQUIRE(runtime::wait_until([&] { return (status = (*waiting)->poll()).has_value(); }, long_s));
  CHECK(*status == 1);
  CHECK(cluster.ask({"cancel", "1"}).out == "job 1 was cancelled already\n");
}

TEST_CASE(
    "a program gets as many GPUs as it asks for, the same number on each node, or is refused") {
  const scratch where;
  const auto cluster_file = where.write("six.yaml", two_nodes_of_three);
  for (const std::string policy : {"troupe", "fcfs", "frenzy", "gandiva"}) {
    CAPTURE(policy);
    detached cluster{{"--policy", policy}, {}, cluster_file};
    INFO(cluster.said.err);
    REQUIRE(cluster.said.status == 0);
    const auto ranks = cluster.where / "ranks";
    const auto script =
        "echo $WORLD_SIZE $NNODES $LOCAL_WORLD_SIZE $(echo $CUDA_VISIBLE_DEVICES | tr , x) >> " +
        ranks;
    const auto said = troupe::test::troupe(
        {"submit", "--state", cluster.state, "--gpus", "6", "--wait", "--", "sh", "-c", script});
    INFO(said.err);
    CHECK(said.status == 0);
    CHECK(printed_in(ranks) == "6 2 3 0x1x2\n6 2 3 0x1x2\n");
    fs::remove(ranks);
    const auto two = troupe::test::troupe({"submit", "--state", cluster.state, "--gpus", "2",
                                           "--memory", "30", "--wait", "--", "sh", "-c", script});
    CHECK(two.status == 0);
    CHECK(printed_in(ranks) == "2 1 2 0x1\n");
    for (const auto& [words, why] : std::vector<std::pair<std::vector<std::string>, std::string>>{
             {{"--gpus", "7"}, "needs 7 GPUs; the cluster has 6"},
             {{"--gpus", "5"}, "the same number on each node"},
             {{"--memory", "50"}, "needs more than 50.0 GB per GPU; the largest here has 40 GB"}}) {
      std::vector<std::string> all{"submit", "--wait"};
      all.insert(all.end(), words.begin(), words.end());
      all.insert(all.end(), {"--", "true"});
      all.insert(all.begin() + 1, {"--state", cluster.state});
      const auto refused = troupe::test::troupe(all);
      CHECK(refused.status == 1);
      CHECK_THAT(refused.err, Catch::Contains(why));
    }
    const auto assumed = troupe::test::troupe({"submit", "--state", cluster.state, "--", "true"});
    CHECK(assumed.status == 0);
    CHECK_THAT(assumed.err, Catch::Contains("no --model, --gpus or --memory: planned as "
                                            "gpt2-124m, batch 1, 3.55 GB, on 1 GPU"));
  }
}

TEST_CASE("every policy that decides within a minute starts programs with the GPUs they ask for",
          "[.long]") {
  const scratch where;
  const auto cluster_file = where.write("six.yaml", two_nodes_of_three);
  for (const auto name : planners::policy_names()) {
    const std::string policy{name};
    // Those that take only jobs with a deadline; and Gavel's rounds and others' are longer.
    if (policy == "crius-ddl" || policy == "elasticflow") continue;
    if (planners::make_policy(policy)->traits().round_s > 60) continue;
    CAPTURE(policy);
    detached cluster{{"--policy", policy}, {}, cluster_file};
    INFO(cluster.said.err);
    REQUIRE(cluster.said.status == 0);
    for (const std::string gpus : {"1", "2", "3"})
      CHECK(
          troupe::test::troupe({"submit", "--state", cluster.state, "--gpus", gpus, "--", "sh",
                                "-c", "echo $WORLD_SIZE > " + (cluster.where / ("ranks-" + gpus))})
              .status == 0);
    for (const std::string gpus : {"1", "2", "3"}) {
      CHECK(cluster.ask({"wait", gpus}).status == 0);  // jobs 1 to 3
      CHECK(printed_in(cluster.where / ("ranks-" + gpus)) == gpus + "\n");
    }
  }
}

TEST_CASE(
    "a command after -- is a job without a file, and runs in the directory of its submission") {
  detached cluster;
  REQUIRE(cluster.said.status == 0);
  const auto said = cluster.where / "said";
  std::vector<std::string> words{
      "submit",  "--state", cluster.state, "--wait",
      "--batch", "2",       "--name",      "mine",
      "--",      "sh",      "-c",          "pwd > said; echo $0 --json -f >> said; exit 4",
      "--wait"};
  CHECK(troupe::test::troupe(words, cluster.where.path()).status == 4);
  std::ifstream in{said};
  std::string directory, rest;
  std::getline(in, directory);
  std::getline(in, rest);
  CHECK(fs::equivalent(directory, cluster.where.path()));
  CHECK(rest == "--wait --json -f");
  const auto job = cluster.ask({"status", "1", "--json"}).document().at("jobs")[0];
  CHECK(job.at("name") == "mine");
  for (const auto& bad : std::vector<std::vector<std::string>>{
           {"submit", "--gpus", "0", "--", "true"},
           {"submit", "x.yaml", "--", "true"},
           {"submit"},
           {"submit", "--batch", "3", script_job(cluster.where, "j", "true")},
           {"status", "--", "true"}})
    CHECK(troupe::test::troupe(bad).status == 2);
  CHECK_THAT(troupe::test::troupe({"submit", "--gpus", "0", "--", "true"}).err,
             Catch::Contains("the command line: gpus: found '0'"));
}
