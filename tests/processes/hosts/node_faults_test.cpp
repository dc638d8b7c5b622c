#include <signal.h>

#include <fstream>

#include "harness/scratch.hpp"
#include "processes/fixture.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/process/process_group.hpp"

// Nodes that cannot start or stop programs as usual: their keepers, or the processes that start
// those, are killed or stopped; their directory cannot be written. It costs no job its end, and
// never lets two attempts run at a time.

using namespace troupe;
using namespace troupe::test;

namespace {

std::string nodes_of_four(const scratch& where, int count) {
  return where.write("cluster.yaml",
                     fmt::format("name: faults\n"
                                 "datacenters:\n"
                                 "  - name: east\n"
                                 "    nodes:\n"
                                 "      - {{name: {}, gpu: A100-40GB, gpus: 4, count: {}, intra: "
                                 "pcie4, inter: eth25}}\n"
                                 "settings: {{heartbeat_s: 0.2, lease_s: 3}}\n",
                                 count == 1 ? "e-0" : "e", count));
}

struct faults_fixture {
  explicit faults_fixture(const char* name, int nodes = 1)
      : cluster{name, nodes_of_four(where, nodes), cli::default_policy} {
    REQUIRE(cluster.wait_for_nodes());
  }
  /// A program of one GPU in `where`, which must never lose an attempt.
  job_id submit(const std::string& script, std::uint32_t max_restarts = 0) {
    auto s = fixture::program("program", script);
    s.request.gpus = 1;
    s.limits.max_restarts = max_restarts;
    s.program.working_directory = where.path();
    return cluster.submit(s);
  }
  job_status job(job_id id) { return cluster.job(id); }
  bool is(job_id id, job_state s) { return cluster.is(id, s); }
  bool cancel(job_id id) {
    auto reply = cluster.client->ask(cancel_job{0, id}, long_s).reply;
    REQUIRE(reply);
    return std::get<cancel_reply>(reply->first).done;
  }
  bool present(std::size_t node) { return cluster.jobs().nodes.at(node).present; }
  /// A number that a program has written.
  pid_t pid_in(const std::string& file) {
    pid_t pid = 0;
    REQUIRE(runtime::wait_until(
        [&] { return static_cast<bool>(std::ifstream{where / file} >> pid); }, long_s, 0.05));
    return pid;
  }
  /// The process that starts keepers on e-0, and its guard.
  void find_starters() {
    const auto children = runtime::living_children(cluster.cluster->id("e-0"));
    REQUIRE(children.size() == 1);
    guard = children.front();
    REQUIRE(
        runtime::wait_until([&] { return !runtime::living_children(guard.pid).empty(); }, long_s));
    server = runtime::living_children(guard.pid).front();
  }
  void signal_starters(int signal) {
    find_starters();
    runtime::signal_process(guard, signal);
    runtime::signal_process(server, signal);
  }
  bool gone(const runtime::process_id& p) {
    return runtime::wait_until([&] { return !runtime::is_alive(p); }, long_s);
  }
  void four_more_run() {
    std::vector<job_id> ids;
    for (int i = 0; i < 4; ++i) ids.push_back(submit("exit 0"));
    for (const auto id : ids) CHECK(is(id, job_state::finished));
    for (const auto id : ids) CHECK(job(id).progress.attempts == 1);
  }

  scratch where;
  fixture cluster;
  runtime::process_id guard, server;
};

constexpr const char* stays = "echo $$ > program; exec sleep 1000";

}  // namespace

TEST_CASE(
    "programs start, can be cancelled and end with their node while the keepers' server is "
    "stopped") {
  faults_fixture f{"stopped-starters"};
  f.signal_starters(SIGSTOP);
  CHECK(f.is(f.submit("exit 0"), job_state::finished));
  f.signal_starters(SIGSTOP);
  const auto waits = f.submit("exec sleep 1000");
  REQUIRE(f.is(waits, job_state::running));
  REQUIRE(f.cancel(waits));
  CHECK(f.is(waits, job_state::cancelled));

  const auto goes_on = f.submit(stays, 5);
  const auto first = runtime::identify(f.pid_in("program"));
  f.signal_starters(SIGSTOP);
  SECTION("SIGTERM") {
    ::kill(f.cluster.cluster->id("e-0"), SIGTERM);
    std::vector<cli::ended_process> ended;
    const runtime::stopwatch took;
    REQUIRE(runtime::wait_until([&] { return !(ended = f.cluster.cluster->ended()).empty(); },
                                long_s, 0.05));
    CHECK(took.s() < 20);
    CHECK(ended.front().name == "e-0");
  }
  SECTION("SIGKILL") {
    f.cluster.cluster->kill("e-0");
  }
  fs::remove(f.where / "program");
  REQUIRE(f.cluster.cluster->restart("e-0"));
  f.pid_in("program");
  CHECK(f.gone(first));
  CHECK(f.gone(f.guard));
  CHECK(f.gone(f.server));
  CHECK(f.job(goes_on).progress.attempts == 2);
  f.four_more_run();
}

TEST_CASE(
    "killed processes that start keepers cost no job, and both of them a restart of the node") {
  faults_fixture f{"killed-starters"};
  const auto goes_on = f.submit(stays);
  f.pid_in("program");
  f.find_starters();
  runtime::signal_process(f.server, SIGKILL);
  REQUIRE(f.gone(f.server));
  f.four_more_run();
  f.find_starters();
  runtime::signal_process(f.guard, SIGKILL);
  REQUIRE(f.gone(f.guard));
  f.four_more_run();
  CHECK(f.job(goes_on).state == job_state::running);
  CHECK(f.job(goes_on).progress.attempts == 1);
  REQUIRE(f.cancel(goes_on));
  CHECK(f.is(goes_on, job_state::cancelled));

  runtime::signal_process(f.server, SIGKILL);
  std::vector<cli::ended_process> ended;
  REQUIRE(runtime::wait_until([&] { return !(ended = f.cluster.cluster->ended()).empty(); }, long_s,
                              0.05));
  CHECK_THAT(ended.front().sentence, Catch::Contains("keepers was killed"));
  REQUIRE(f.cluster.cluster->restart("e-0"));
  // The controller may still take it for the node that has ended, so it may lose an attempt.
  CHECK(f.is(f.submit("exit 0", 5), job_state::finished));
  f.four_more_run();
}

TEST_CASE("a killed keeper's job has another attempt, and a stopped keeper's can be cancelled") {
  faults_fixture f{"lost-keeper"};
  const auto script = "echo $PPID > keeper$TROUPE_ATTEMPT; exec sleep 1000";
  const auto id = f.submit(script, 5);
  ::kill(f.pid_in("keeper1"), SIGKILL);
  const auto keeper = f.pid_in("keeper2");
  CHECK(f.job(id).progress.attempts == 2);
  f.four_more_run();
  ::kill(keeper, SIGSTOP);
  REQUIRE(f.cancel(id));
  CHECK(f.is(id, job_state::cancelled));
  f.four_more_run();
}

TEST_CASE("a second attempt never runs beside the first one, whose keeper is stopped") {
  faults_fixture f{"one-attempt", 2};
  const auto id = f.submit(
      "exec 9>> lock; flock -n 9 || touch both; echo $PPID > keeper$TROUPE_ATTEMPT; exec sleep "
      "1000",
      5);
  ::kill(f.pid_in("keeper1"), SIGSTOP);
  f.cluster.cluster->kill("east/gateway");  // the lease is not renewed
  REQUIRE(f.is(id, job_state::waiting));
  REQUIRE(f.cluster.cluster->restart("east/gateway"));
  f.pid_in("keeper2");
  CHECK_FALSE(fs::exists(f.where / "both"));
  REQUIRE(f.cluster.wait_for_nodes());
}

TEST_CASE(
    "a node whose logs cannot be written takes no program until they can be, and fails none") {
  faults_fixture f{"no-logs", 2};
  const auto logs = f.cluster.state / "e-0" / "logs";
  fs::remove_all(logs);
  std::ofstream{logs} << "a file\n";
  std::vector<job_id> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(f.submit("echo $TROUPE_NODE >> nodes"));
  for (const auto id : ids) CHECK(f.is(id, job_state::finished));
  CHECK_FALSE(f.present(0));
  CHECK(f.present(1));
  std::ifstream in{f.where / "nodes"};
  for (std::string node; in >> node;) CHECK(node == "e-1");
  fs::remove(logs);
  CHECK(runtime::wait_until([&] { return f.present(0); }, long_s, 0.1));
}
