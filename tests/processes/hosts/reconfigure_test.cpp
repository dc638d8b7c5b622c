#include <signal.h>

#include <fstream>
#include <map>
#include <thread>

#include "harness/facts.hpp"
#include "harness/scratch.hpp"
#include "processes/fixture.hpp"
#include "runtime/process/process.hpp"

// A cluster of processes whose file changes while programs and a training run on it.

using namespace troupe;
using namespace troupe::test;

namespace {

std::string node_line(const std::string& name) {
  return "      - {name: " + name + ", gpu: A100-40GB, gpus: 8, intra: nvlink, inter: ib100}\n";
}

/// A cluster file with these nodes, in this order.
std::string with_nodes(const std::vector<std::string>& names, double heartbeat_s = 0.2) {
  std::string text = "name: changing\ndatacenters:\n  - name: here\n    nodes:\n";
  for (const auto& name : names) text += node_line(name);
  return text + fmt::format("settings: {{heartbeat_s: {}, lease_s: 4, preempt_grace_s: 2}}\n",
                            heartbeat_s);
}

struct changing_cluster : fixture {
  changing_cluster(const char* name, const scratch& directory)
      : fixture{name, directory.write("three.yaml", with_nodes({"a", "b", "c"})), "fcfs"},
        files{directory} {
    REQUIRE(wait_for_nodes());
    for (int i = 0; i < 10; ++i) {
      auto job = program(fmt::format("program-{}", i), "echo begun; exec sleep 600");
      job.request.gpus = 1;  // two nodes hold them all
      job.request.exact = true;
      submit(job);
    }
    auto training = formats::load_job(shipped("jobs/train-tiny.yaml"));
    REQUIRE(training);
    training->iterations = 10'000'000;
    training->limits.max_gpus = 2;
    training->train->checkpoint.clear();
    submit(*training);
    REQUIRE(wait_until([](const query_reply& r) {
      return r.jobs.size() == 11 && std::ranges::all_of(r.jobs, [](const job_status& j) {
               return j.state == job_state::running;
             });
    }));
    at_first = places();
  }

  reconfigure_reply change(const std::string& name, const std::string& text) {
    const auto c = formats::load_cluster(files.write(name, text));
    REQUIRE(c);
    const auto reply = client->ask(reconfigure{0, *c}, long_s).reply;
    REQUIRE(reply);
    return std::get<reconfigure_reply>(reply->first);
  }

  std::unique_ptr<runtime::process> start_node(const std::string& name, const std::string& file) {
    runtime::process_options o;
    o.command = {TROUPE_PROGRAM, "node",
                 "--cluster",    files.path(file),
                 "--name",       name,
                 "--state",      (state / name).string(),
                 "--gateway",    cluster->gateway_address("here")};
    o.output = (state / (name + ".out")).string();
    auto started = runtime::process::start(o);
    REQUIRE(started);
    return std::move(*started);
  }

  /// "NODE ATTEMPTS STATE" of each job.
  std::map<job_id, std::string> places() {
    std::map<job_id, std::string> all;
    const auto r = jobs();
    for (const auto& j : r.jobs)
      all[j.job] = fmt::format("{} {} {}", j.where.empty() ? "-" : r.nodes[j.where[0].node].name,
                               j.progress.attempts, to_string(j.state));
    return all;
  }
  /// Jobs that are elsewhere, were started again or have another state than at first.
  std::vector<std::string> displaced() {
    std::vector<std::string> all;
    auto now = places();
    for (const auto& [job, place] : at_first)
      if (now[job] != place)
        all.push_back(fmt::format("{}: {}, at first {}", job, now[job], place));
    return all;
  }

  const scratch& files;
  std::map<job_id, std::string> at_first;
};

}  // namespace

TEST_CASE("nodes join and leave, their order and the heartbeat change: other work goes on") {
  const scratch directory;
  changing_cluster f{"reconfigure", directory};
  // Three to four.
  auto said = f.change("four.yaml", with_nodes({"a", "b", "c", "d"}));
  CHECK(said.what.added == std::vector<std::string>{"d"});
  CHECK(said.what.removed.empty());
  auto d = f.start_node("d", "four.yaml");
  REQUIRE(f.wait_until([](const query_reply& r) {
    return r.nodes.size() == 4 && r.nodes[3].name == "d" && r.nodes[3].present;
  }));
  CHECK(f.displaced() == std::vector<std::string>{});
  // Two swapped, and another heartbeat.
  CHECK(f.change("swapped.yaml", with_nodes({"b", "a", "c", "d"})).what == cluster_difference{});
  CHECK(f.change("slower.yaml", with_nodes({"d", "b", "a", "c"}, 0.5)).what.changed ==
        std::vector<std::string>{"heartbeat_s: 0.5 instead of 0.2"});
  runtime::pause(5);  // longer than a lease
  CHECK(f.displaced() == std::vector<std::string>{});
  // Four to three: the one without work, whose process ends.
  said = f.change("three-again.yaml", with_nodes({"c", "b", "a"}, 0.5));
  CHECK(said.what.removed == std::vector<std::string>{"d"});
  CHECK(said.stopping.empty());
  const runtime::stopwatch waited;
  while (!d->poll() && waited.s() < long_s) runtime::pause(0.05);
  std::ifstream in{f.state / "d.out"};
  const std::string output{std::istreambuf_iterator<char>{in}, {}};
  INFO(output);
  CHECK(output.find("node d was removed from the cluster") != std::string::npos);
  CHECK(f.displaced() == std::vector<std::string>{});
  // And one with work: that is queued again, once its grace is over.
  const auto on = [&](const std::string& node) {
    std::vector<job_id> all;
    for (const auto& [id, place] : f.at_first)
      if (place.starts_with(node + " ")) all.push_back(id);
    return all;
  };
  const auto busy = on("a").empty() ? (on("b").empty() ? "c" : "b") : "a";
  std::vector<std::string> rest;
  for (const char* name : {"a", "b", "c"})
    if (std::string{name} != busy) rest.emplace_back(name);
  said = f.change("two.yaml", with_nodes(rest, 0.5));
  CHECK(said.what.removed == std::vector<std::string>{busy});
  CHECK(said.stopping == on(busy));
  const bool all_run = f.wait_until([&](const query_reply& r) {
    return std::ranges::all_of(r.jobs, [&](const job_status& j) {
      return j.state == job_state::running && r.nodes[j.where[0].node].name != busy;
    });
  });
  for (const auto& j : f.jobs().jobs)
    UNSCOPED_INFO("job " << j.job << ": " << f.at_first[j.job] << ", then " << to_string(j.state)
                         << ' ' << j.waiting_reason << ' ' << j.detail);
  REQUIRE(all_run);
  for (const auto& [id, place] : f.places()) {
    const bool moved = f.at_first[id].starts_with(busy);
    INFO("job " << id << ": " << f.at_first[id] << ", then " << place);
    CHECK(place.find(moved ? " 2 " : " 1 ") != std::string::npos);
    if (!moved) CHECK(place == f.at_first[id]);
  }
  // Its first file does not bring the controller back to three nodes.
  const auto before = f.places();
  REQUIRE(f.cluster->restart("controller"));
  REQUIRE(f.wait_until([&](const query_reply& r) {
    return std::ranges::all_of(
        r.nodes, [](const node_status& n) { return n.present != n.removed.value_or(false); });
  }));
  CHECK(f.places() == before);
}

TEST_CASE("a controller that is killed while its cluster changes has the old one or the new one") {
  const scratch directory;
  changing_cluster f{"reconfigure-kill", directory};
  for (int point = 0; point < 10; ++point) {
    const bool four = point % 2 == 0;
    const auto text = four ? with_nodes({"d", "a", "b", "c"}) : with_nodes({"c", "b", "a"});
    const auto c = formats::load_cluster(f.files.write("next.yaml", text));
    REQUIRE(c);
    const auto victim = f.cluster->id("controller");
    std::jthread killer{[&] {
      runtime::pause(0.002 * point);
      ::kill(victim, SIGKILL);
      runtime::pause(0.2);
      REQUIRE(f.cluster->restart("controller"));
    }};
    const auto reply = f.client->ask(reconfigure{0, *c}, long_s).reply;
    killer.join();
    REQUIRE(reply);
    CHECK(std::get<reconfigure_reply>(reply->first).done);
    const auto r = f.jobs();
    REQUIRE(r.nodes.size() == 4);
    CHECK(r.nodes[3].name == "d");
    CHECK(r.nodes[3].removed.value_or(false) != four);
  }
  REQUIRE(f.wait_until([](const query_reply& r) {
    return std::ranges::all_of(
        r.nodes, [](const node_status& n) { return n.present != n.removed.value_or(false); });
  }));
  CHECK(f.displaced() == std::vector<std::string>{});
}
