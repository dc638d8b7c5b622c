#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>

#include "processes/detached.hpp"
#include "runtime/host/wait.hpp"

// Where programs run, with real processes: a node's own list of GPUs, datacenters without a link,
// numbers of GPUs that differ between nodes, drained nodes, and what explains a job that waits.

using namespace troupe;
using namespace troupe::test;

namespace {

/// For the processes that are started while this lives.
struct shown_gpus {
  explicit shown_gpus(const char* list) { ::setenv("CUDA_VISIBLE_DEVICES", list, 1); }
  ~shown_gpus() { ::unsetenv("CUDA_VISIBLE_DEVICES"); }
};

const std::string two_sites = R"(name: two
datacenters:
  - name: east
    nodes:
      - {name: e, gpu: A100-40GB, gpus: 4, count: 2, intra: nvlink, inter: ib100}
  - name: west
    nodes:
      - {name: w, gpu: A100-40GB, gpus: 4, intra: nvlink, inter: ib100}
settings: {heartbeat_s: 0.2, lease_s: 3}
)";

/// A detached cluster of three nodes in two datacenters, whose nodes have a list of GPUs.
struct sites {
  shown_gpus list;
  scratch files;
  detached cluster;

  explicit sites(const char* gpus)
      : list{gpus}, cluster{{}, {}, files.write("cluster.yaml", two_sites)} {
    INFO(cluster.said.err);
    REQUIRE(cluster.said.status == 0);
  }
  std::string submit(std::vector<std::string> words) {
    words.insert(words.begin(), {"submit", "--json"});
    const auto at = std::ranges::find(words, "--");
    words.insert(at, {"--state", cluster.state});
    const auto said = test::troupe(words);
    INFO(said.out << said.err);
    REQUIRE(said.status == 0);
    return std::to_string(said.document().at("jobs")[0].at("job").get<int>());
  }
  nlohmann::json status(const std::string& job) {
    return cluster.ask({"status", job, "--json"}).document().at("jobs")[0];
  }
  bool is(const std::string& job, const std::string& state) {
    return runtime::wait_until([&] { return status(job).at("state") == state; }, long_s, 0.1);
  }
};

}  // namespace

TEST_CASE("programs get their node's own GPUs, stay where there are links, and say why they wait") {
  sites c{"4,GPU-8932f937-d72c,6,7,9"};
  // Twelve GPUs are there, but not in datacenters that are linked.
  const auto apart = test::troupe(
      {"submit", "--state", c.cluster.state, "--gpus", "12", "--", "sh", "-c", "true"});
  CHECK(apart.status == 1);
  CHECK_THAT(apart.err, Catch::Contains("12") && Catch::Contains("east and west") &&
                            Catch::Contains("no link"));
  // 7 GPUs are 4 and 3: every rank once, and each node's own numbers.
  const auto uneven = c.files.write(
      "uneven.yaml",
      "name: uneven\ngpus: 7\nunequal: true\ncommand: [python3, -m, troupe.run, -m, ranks]\n"
      "working_directory: " +
          c.files.path("") + "\n");
  c.files.write("ranks.py",
                "import os\ne = os.environ\nprint('rank', e['RANK'], e['WORLD_SIZE'], "
                "e['LOCAL_RANK'], e['LOCAL_WORLD_SIZE'], e['PET_NPROC_PER_NODE'], "
                "e['CUDA_VISIBLE_DEVICES'], flush=True)\n");
  const auto seven = c.submit({uneven});
  REQUIRE(c.is(seven, "finished"));
  std::istringstream lines{c.cluster.ask({"logs", seven, "--all"}).out};
  std::set<int> ranks;
  std::multiset<std::string> places;
  for (std::string line; std::getline(lines, line);) {
    const auto at = line.find("rank ");
    if (at == line.npos) continue;
    std::istringstream words{line.substr(at + 5)};
    int rank = -1, world = 0, local = -1, here = 0, each = 0;
    std::string gpus;
    words >> rank >> world >> local >> here >> each >> gpus;
    CHECK(world == 7);
    CHECK(here == each);
    CHECK(rank == (here == 4 ? local : 4 + local));
    ranks.insert(rank);
    places.insert(gpus);
  }
  CHECK(ranks.size() == 7);
  CHECK(places.count("4,GPU-8932f937-d72c,6,7") == 4);
  CHECK(places.count("4,GPU-8932f937-d72c,6") == 3);
  // A wide program that waits for a drained node keeps nothing idle.
  REQUIRE(c.cluster.ask({"drain", "e-1"}).status == 0);
  const auto wide = c.submit({"--gpus", "8", "--name", "wide", "--", "true"});
  const auto small = c.submit({"--gpus", "1", "--", "true"});
  CHECK(c.is(small, "finished"));
  CHECK(c.status(wide).at("state") == "waiting");
  CHECK(c.status(wide).at("waiting_reason") == "resources");
  CHECK_THAT(c.cluster.ask({"explain", wide}).out,
             Catch::Contains("e-1, which is drained") && Catch::Contains("waits for"));
  REQUIRE(c.cluster.ask({"undrain", "e-1"}).status == 0);
  CHECK(c.is(wide, "finished"));
  // One that waits for running programs keeps the idle GPUs, and who waits behind it is told so.
  std::vector<std::string> holders;
  for (int i = 0; i < 3; ++i) holders.push_back(c.submit({"--gpus", "4", "--", "sleep", "1000"}));
  for (const auto& h : holders) REQUIRE(c.is(h, "running"));
  const auto kept = c.submit({"--gpus", "8", "--name", "kept", "--", "true"});
  const auto behind = c.submit({"--gpus", "1", "--", "true"});
  for (const auto& h : holders)
    if (c.status(h).at("allocation")[0].at("node") == "e-0")
      REQUIRE(c.cluster.ask({"cancel", h}).status == 0);
  CHECK(runtime::wait_until([&] { return c.status(behind).at("waiting_reason") == "reservation"; },
                            long_s, 0.1));
  CHECK_THAT(
      c.cluster.ask({"explain", behind}).out,
      Catch::Contains("4 idle GPUs of e-0 are kept for job " + kept) && Catch::Contains("'kept'"));
}

TEST_CASE(
    "`up` and a node with fewer GPUs in their list than the file gives end with both counts") {
  const scratch files;
  const auto file = files.write("cluster.yaml", two_sites);
  const struct {
    const char *list, *said;
  } wrong[] = {
      {"4,5,x,6", "shows 2 GPUs (CUDA stops reading at 'x'"},
      {"", "shows 0 GPUs"},
      {"4,5,-1,6,7", "shows 2 GPUs (CUDA stops reading at '-1'"},
      {"4,5,6,4", "lists 4 twice"},
  };
  for (const auto& w : wrong) {
    CAPTURE(w.list);
    const shown_gpus list{w.list};
    const auto up = test::troupe({"up", file, "--state", files / "state", "--detach"});
    CHECK(up.status == 1);
    CHECK_THAT(up.err, Catch::Contains(w.said));
    const auto node = test::troupe({"node", "--cluster", file, "--name", "e-1", "--gateway",
                                    "ipc:///nowhere", "--state", files / "node"});
    CHECK(node.status == 2);
    CHECK_THAT(node.err, Catch::Contains(w.said));
    if (std::string{w.said}.starts_with("shows")) CHECK_THAT(node.err, Catch::Contains("e-1 4"));
  }
}
