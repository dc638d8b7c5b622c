#include <fstream>

#include "processes/detached.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/process/process.hpp"

// Words of clients and hosts where a newcomer meets silence: nobody is there, a job waits, a
// program has failed, a rank is missing.

using namespace troupe;
using namespace troupe::test;

namespace {

const std::string one_node_of_two = R"(name: words
settings: {restart_s: 0, heartbeat_s: 0.2}
datacenters:
  - name: here
    nodes: [{name: n, gpu: A100-40GB, gpus: 2, intra: nvlink, inter: ib100}]
)";

result submitted(const detached& cluster, std::vector<std::string> options,
                 const std::vector<std::string>& command) {
  std::vector<std::string> words{"submit", "--state", cluster.state};
  words.insert(words.end(), options.begin(), options.end());
  words.emplace_back("--");
  words.insert(words.end(), command.begin(), command.end());
  return troupe::test::troupe(words);
}

}  // namespace

TEST_CASE("submit --wait says why a job waits, and the last line of a program that failed") {
  const scratch files;
  const detached cluster{{}, "", files.write("words.yaml", one_node_of_two)};
  REQUIRE(cluster.said.status == 0);
  REQUIRE(submitted(cluster, {"--gpus", "2"}, {"sleep", "4"}).status == 0);
  const auto waited = submitted(cluster, {"--gpus", "1", "--name", "next", "--wait"},
                                {"sh", "-c", "echo first; echo the reason; exit 3"});
  CHECK(waited.status == 3);
  CHECK_THAT(waited.err, Catch::Contains("troupe: job 2 (next) waits: "));
  CHECK_THAT(waited.err, Catch::Contains("  its last line: the reason\n"));
  CHECK_THAT(waited.err, Catch::Contains("`troupe logs 2` shows its output"));
  CHECK_THAT(waited.err, !Catch::Contains("first"));
  // Once, and not where nothing is to be said.
  CHECK(waited.err.find("waits: ") == waited.err.rfind("waits: "));
  const auto good = submitted(cluster, {"--gpus", "1", "--wait"}, {"echo", "fine"});
  CHECK(good.status == 0);
  CHECK_THAT(good.err, !Catch::Contains("its last line"));
}

TEST_CASE("a Python file on several GPUs of a node without a launcher gets a warning") {
  const scratch files;
  const detached cluster{{}, "", files.write("words.yaml", one_node_of_two)};
  REQUIRE(cluster.said.status == 0);
  const auto warned = submitted(cluster, {"--gpus", "2", "--json"}, {"python3", "-u", "train.py"});
  CHECK_THAT(warned.err, Catch::Contains("started once a node, with WORLD_SIZE=2 in all"));
  CHECK_THAT(warned.err, Catch::Contains("`torchrun train.py`"));
  CHECK_THAT(warned.document().at("jobs").at(0).at("notice").get<std::string>(),
             Catch::Contains("torchrun"));
  for (const auto& command :
       std::vector<std::vector<std::string>>{{"python3", "-m", "troupe.run", "train.py"},
                                             {"torchrun", "train.py"},
                                             {"python3", "-c", "print(1)", "train.py"},
                                             {"sh", "train.py"}}) {
    CAPTURE(command);
    CHECK_THAT(submitted(cluster, {"--gpus", "2"}, command).err, !Catch::Contains("WORLD_SIZE"));
  }
  CHECK_THAT(submitted(cluster, {"--gpus", "1"}, {"python3", "train.py"}).err,
             !Catch::Contains("WORLD_SIZE"));
}

TEST_CASE("a client without a controller says at once that it waits, and where one is up") {
  const detached cluster;
  REQUIRE(cluster.said.status == 0);
  const scratch here;
  std::filesystem::create_directory(here / "out");
  std::filesystem::create_directory_symlink(cluster.state, here / "out/serving");
  const auto r = troupe::test::troupe({"status", "--patience", "0.6"}, here.path());
  CHECK(r.status == 1);
  CHECK_THAT(r.err, Catch::StartsWith("troupe: no controller on troupe-state yet, waits up to 0.6 s"
                                      " for one; a cluster is up on out/serving (--state)\n"));
  CHECK_THAT(r.err, Catch::Contains("no controller found: troupe-state/controller.address"));
  const auto down = troupe::test::troupe({"down"}, here.path());
  CHECK(down.status == 1);
  CHECK_THAT(down.err, Catch::Contains("; one is up on out/serving (--state)"));
  const scratch nothing;
  CHECK_THAT(troupe::test::troupe({"down"}, nothing.path()).err,
             Catch::Contains("SIGTERM ends a host that was started by hand"));
}

TEST_CASE("a node says that it waits for a gateway that it does not reach") {
  const scratch where;
  const auto cluster = where.write("words.yaml", one_node_of_two);
  runtime::process_options o;
  o.command = {TROUPE_PROGRAM, "node",
               "--cluster",    cluster,
               "--name",       "n",
               "--state",      where / "state",
               "--gateway",    "ipc://" + (where / "none")};
  o.output = where / "log";
  auto node = runtime::process::start(o);
  REQUIRE(node);
  const auto log = [&] {
    std::ifstream in{where / "log"};
    return std::string{std::istreambuf_iterator<char>{in}, {}};
  };
  CHECK(runtime::wait_until(
      [&] { return log().find("waits for the host that it connects to at=") != std::string::npos; },
      long_s, 0.05));
  INFO(log());
  CHECK_THAT(log(), Catch::Contains("none"));
}
