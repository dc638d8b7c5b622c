#include <fstream>

#include "processes/journal_ends.hpp"
#include "runtime/process/process.hpp"

// Real processes, real sockets, real signals. Every wait is for a condition, with a generous limit.

using namespace troupe;
using namespace troupe::test;

TEST_CASE("SIGKILL and restart of a node, a gateway and the controller lose no job") {
  fixture f{"kills"};
  REQUIRE(f.wait_for_nodes());
  for (int i = 0; i < 6; ++i)
    f.submit(fmt::format("job-{}", i), "for i in 1 2 3 4 5 6; do sleep 0.5; done; echo done");
  REQUIRE(f.wait_until([](const query_reply& r) {
    return std::all_of(r.jobs.begin(), r.jobs.end(),
                       [](const auto& j) { return j.state == job_state::running; });
  }));
  const auto running = f.jobs();
  const auto victim = running.nodes[running.jobs.front().where.front().node].name;
  f.cluster->kill(victim);
  REQUIRE(f.cluster->restart("east/gateway"));
  REQUIRE(f.cluster->restart("controller"));
  REQUIRE(f.wait_until(all_final));
  REQUIRE(f.cluster->restart(victim));
  REQUIRE(f.wait_for_nodes());
  f.submit("after-it-all", "true");
  REQUIRE(f.wait_until(all_final));
  for (const auto& j : f.jobs().jobs) {
    INFO(j.name << ": " << j.detail);
    CHECK(j.state == job_state::finished);
  }

  // The journal agrees: each job ended once.
  const auto ends = ends_in_journal(f);
  CHECK(ends.size() == 7);
  for (const auto& [id, times] : ends) CHECK(times == 1);
}

TEST_CASE("a second controller on one journal refuses to start, and names the reason") {
  fixture f{"second"};
  runtime::process_options o;
  const auto output = f.state / "second.log";
  o.command = {TROUPE_PROGRAM, "controller",
               "--cluster",    shipped("clusters/demo.yaml").string(),
               "--state",      (f.state / "controller").string(),
               "--listen",     fmt::format("ipc://{}", (f.state / "second").string())};
  o.output = output.string();
  auto second = runtime::process::start(o);
  REQUIRE(second);
  const runtime::stopwatch waited;
  std::optional<int> status;
  while (!(status = (*second)->poll()) && waited.s() < long_s) runtime::pause(0.05);
  REQUIRE(status);
  CHECK(*status == 1);
  std::ifstream in{output};
  const std::string said{std::istreambuf_iterator<char>{in}, {}};
  INFO(said);
  CHECK(said.find("there can be only one") != std::string::npos);
  CHECK(f.wait_for_nodes());  // the first one goes on
}

TEST_CASE("a cancelled program ends, and its log can be read") {
  fixture f{"cancel"};
  REQUIRE(f.wait_for_nodes());
  const auto id = f.submit("long", "echo hello from $TROUPE_NODE; sleep 1000 & wait");
  REQUIRE(f.wait_until(
      [](const query_reply& r) { return r.jobs.front().state == job_state::running; }));
  const runtime::stopwatch waited;
  std::string log;
  while (log.find("hello from") == std::string::npos && waited.s() < long_s) {
    auto chunk = f.client->ask(read_log{0, id, 0, 0, 0}, long_s).reply;
    REQUIRE(chunk);
    const auto bytes = chunk->second.bytes();  // the payload keeps them
    log.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    runtime::pause(0.05);
  }
  CHECK(log.find("hello from") != std::string::npos);
  auto reply = f.client->ask(cancel_job{0, id}, long_s).reply;
  REQUIRE(reply);
  CHECK(std::get<cancel_reply>(reply->first).done);
  REQUIRE(f.wait_until(all_final));
  CHECK(f.jobs().jobs.front().state == job_state::cancelled);
}

TEST_CASE(
    "a program that runs out of memory gets a new plan, and the failed prediction is recorded") {
  fixture f{"oom"};
  REQUIRE(f.wait_for_nodes());
  // It fails once, whatever was predicted.
  const auto mark = (f.state / "mark").string();
  const auto id = f.submit("hungry", "if [ -e " + mark + " ]; then exit 0; fi; touch " + mark +
                                         "; echo CUDA out of memory; exit 1");
  REQUIRE(f.wait_until(all_final));
  auto reply = f.client->ask(explain_job{0, id}, long_s).reply;
  REQUIRE(reply);
  const auto& e = std::get<explanation>(reply->first);
  CHECK(e.job.state == job_state::finished);
  CHECK(e.job.progress.attempts > 1);
  REQUIRE_FALSE(e.memory.empty());
  for (std::size_t i = 1; i < e.memory.size(); ++i)
    CHECK(e.memory[i].predicted_bytes > e.memory[i - 1].predicted_bytes);
}
