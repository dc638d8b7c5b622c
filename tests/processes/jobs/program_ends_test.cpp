#include <array>
#include <fstream>
#include <map>

#include "messages/base/random.hpp"
#include "processes/detached.hpp"
#include "processes/fixture.hpp"
#include "runtime/host/wait.hpp"

// Programs that are stopped, fail beside other ranks, or lose a node: whether their job goes on,
// and from where.

using namespace troupe;
using namespace troupe::test;

namespace {

/// Two nodes; a job of gpt2-124m gets one GPU, one of gpt2-7b all GPUs of both.
std::string two_nodes(const scratch& where) {
  return where.write(
      "cluster.yaml",
      "name: ends\n"
      "datacenters:\n"
      "  - name: east\n"
      "    nodes:\n"
      "      - {name: e, gpu: A100-40GB, gpus: 4, count: 2, intra: pcie4, inter: eth25}\n"
      "settings: {heartbeat_s: 0.2, lease_s: 3}\n");
}

job_spec program(const fs::path& directory, const char* model, const std::string& script) {
  job_spec s;
  auto m = formats::load_model(shipped(fmt::format("models/{}.yaml", model).c_str()));
  REQUIRE(m);
  s.model = *m;
  s.name = "program";
  s.global_batch = 2;
  s.iterations = 100'000;
  s.program.command = {"sh", "-c", script};
  s.program.working_directory = directory.string();
  return s;
}

/// Goes on at TROUPE_ITERATION, and saves when it is stopped; then `ending`. It is done
/// once there is a file `finish`. Rank 0 reports; `starts` has a line for each attempt.
std::string saving(const std::string& name, const std::string& ending) {
  return fmt::format(
      "n=$TROUPE_ITERATION; "
      "say() {{ [ $NODE_RANK != 0 ] || echo \"$1\" >> $TROUPE_REPORT; }}; "
      "trap 'say \"saved: $n\"; {1}' TERM; "
      "say \"resumed: $n\"; [ $NODE_RANK != 0 ] || echo $TROUPE_ATTEMPT $n >> {0}.starts; "
      "until [ -e finish ]; do n=$((n + 1)); say \"iteration: $n\"; echo $n > {0}.$NODE_RANK; "
      "sleep 0.05; done",
      name, ending);
}

/// The last line of a file, as "attempt iteration".
std::pair<std::uint64_t, std::uint64_t> last_start(const fs::path& file) {
  std::ifstream in{file};
  std::pair<std::uint64_t, std::uint64_t> last{0, 0};
  for (std::uint64_t attempt = 0, n = 0; in >> attempt >> n;) last = {attempt, n};
  return last;
}

std::uint64_t number_in(const fs::path& file) {
  std::uint64_t n = 0;
  std::ifstream{file} >> n;
  return n;
}

/// A cluster of two nodes, and the jobs' directory.
struct ends_fixture {
  explicit ends_fixture(const char* name, const char* policy = cli::default_policy)
      : cluster{name, two_nodes(where), policy} {
    REQUIRE(cluster.wait_for_nodes());
  }
  job_id submit(const char* model, const std::string& script,
                const std::function<void(job_spec&)>& change = {}) {
    auto s = program(where.path(), model, script);
    if (change) change(s);
    return cluster.submit(s);
  }
  job_status job(job_id id) { return cluster.job(id); }
  bool is(job_id id, job_state s) { return cluster.is(id, s); }
  bool has(const std::string& file) {
    return runtime::wait_until([&] { return fs::exists(where / file); }, long_s, 0.05);
  }
  suspend_reply suspend(job_id id, bool on) {
    auto reply = cluster.client->ask(suspend_job{0, id, on}, long_s).reply;
    REQUIRE(reply);
    return std::get<suspend_reply>(reply->first);
  }
  std::string detail_once_failed(job_id id) {
    REQUIRE(cluster.wait_until([&](const auto&) { return is_final(job(id).state); }));
    CHECK(job(id).state == job_state::failed);
    return job(id).detail;
  }

  scratch where;
  fixture cluster;
};

}  // namespace

TEST_CASE(
    "a program that is suspended goes on where it was, however it obeys, on one or two nodes") {
  ends_fixture f{"suspended"};
  const std::vector<std::pair<std::string, std::string>> endings{
      {"zero", "exit 0"}, {"one", "exit 1"}, {"term", "exit 143"}, {"signal", "kill -KILL $$"}};
  std::map<std::string, job_id> jobs;
  const auto round = [&] {
    for (const auto& [name, id] : jobs) {
      INFO(name);
      REQUIRE(f.has(name + ".starts"));
      REQUIRE(runtime::wait_until([&] { return number_in(f.where / (name + ".0")) > 3; }, long_s));
      REQUIRE(f.suspend(id, true).done);
    }
    for (const auto& [name, id] : jobs) {
      INFO(name << ": " << f.job(id).detail);
      REQUIRE(f.is(id, job_state::waiting));
      const auto s = f.job(id);
      CHECK(s.progress.attempts == 1);
      CHECK(s.progress.iterations_done > 0);
      CHECK(s.progress.iterations_done - number_in(f.where / (name + ".0")) <= 1);
      REQUIRE(f.suspend(id, false).done);
    }
    for (const auto& [name, id] : jobs) {
      INFO(name);
      const auto done = f.job(id).progress.iterations_done;
      REQUIRE(runtime::wait_until(
          [&] { return last_start(f.where / (name + ".starts")).first == 2; }, long_s, 0.1));
      CHECK(last_start(f.where / (name + ".starts")).second == done);
    }
    std::ofstream{f.where / "finish"};
    for (const auto& [name, id] : jobs) {
      INFO(name);
      CHECK(f.is(id, job_state::finished));
      CHECK(f.job(id).progress.attempts == 2);
    }
    fs::remove(f.where / "finish");
    jobs.clear();
  };
  for (const auto& [name, ending] : endings)
    jobs[name] = f.submit("gpt2-124m", saving(name, ending));
  round();
  jobs["both"] = f.submit("gpt2-7b", saving("both", "exit 0"));
  REQUIRE(f.has("both.1"));
  CHECK(f.job(jobs["both"]).where.size() == 2);
  round();
}

TEST_CASE("a requeued program is stopped and starts again, and one that is done is finished") {
  detached cluster{{}, {}};
  REQUIRE(cluster.said.status == 0);
  const auto job = cluster.where.write(
      "saves.yaml",
      "name: saves\nmodel: gpt2-124m\nglobal_batch: 4\ncommand: [sh, -c, '" +
          std::string{"trap \"echo saved: 7 >> $TROUPE_REPORT; exit 0\" TERM; touch "} +
          cluster.where.path() + "/up$TROUPE_ATTEMPT; while :; do sleep 0.05; done']\n");
  REQUIRE(cluster.ask({"submit", job}).status == 0);
  const auto up = [&](const char* attempt) {
    return runtime::wait_until([&] { return fs::exists(cluster.where / attempt); }, long_s);
  };
  REQUIRE(up("up1"));
  const auto r = cluster.ask({"requeue", "1", "--json"});
  CHECK(r.status == 0);
  CHECK(r.document().at("iteration") == 7);
  REQUIRE(up("up2"));
  const auto j = cluster.ask({"status", "1", "--json"}).document().at("jobs")[0];
  CHECK(j.at("state") == "running");
  CHECK(j.at("attempts") == 2);
  REQUIRE(cluster.ask({"cancel", "1"}).status == 0);
  CHECK(cluster.ask({"wait", "1"}).status == 1);
  const auto over = cluster.ask({"requeue", "1"});
  CHECK(over.status == 1);
  CHECK_THAT(over.err, Catch::Contains("job 1 already cancelled"));
  const auto done = cluster.where.write(
      "done.yaml",
      "name: done\nmodel: gpt2-124m\nglobal_batch: 4\ncommand: [sh, -c, 'trap \"exit 0\" TERM; "
      "echo \"finished: 1\" >> $TROUPE_REPORT; touch " +
          cluster.where.path() + "/done; while :; do sleep 0.05; done']\n");
  REQUIRE(cluster.ask({"submit", done}).status == 0);
  REQUIRE(up("done"));
  CHECK_THAT(cluster.ask({"suspend", "2"}).err, Catch::Contains("job 2 has finished meanwhile"));
  CHECK(cluster.ask({"wait", "2"}).status == 0);
}

TEST_CASE("the rank and the node that failed are named, and explain shows that rank's output") {
  scratch where;
  detached cluster{{}, {}, two_nodes(where)};
  REQUIRE(cluster.said.status == 0);
  const auto job = where.write(
      "job.yaml",
      "name: rank-1-fails\nmodel: gpt2-7b\nglobal_batch: 2\ncommand: [sh, -c, \"[ $NODE_RANK = 1 ] "
      "&& { sleep 0.5; echo 'ValueError: label 12'; echo 'failed_rank: 5' >> $TROUPE_REPORT; exit "
      "9; }; trap 'echo stopped; exit 0' TERM; "
      "while :; do sleep 0.1; done\"]\n");
  const auto r = cluster.ask({"submit", job, "--wait", "--json"});
  CHECK(r.status == 9);
  const auto end = r.document().at("jobs")[0];
  CHECK(end.at("detail") == "rank 5 on e-1: exit status 9");
  CHECK(end.at("failed_rank") == 5);
  CHECK(end.at("failed_node") == "e-1");
  const auto why = cluster.ask({"explain", "1", "--json"}).document();
  CHECK(why.at("last_output") == nlohmann::json::array({"ValueError: label 12"}));
  CHECK(why.at("failed_node") == "e-1");
  CHECK_THAT(cluster.ask({"explain", "1"}).out,
             Catch::Contains("Last output of node e-1 (troupe logs 1 --rank 1 shows"));
  CHECK(cluster.ask({"status", "1", "--json"}).document().at("jobs")[0].at("failed_rank") == 5);
  const auto text = cluster.ask({"wait", "1"});
  CHECK_THAT(text.out, Catch::Contains("has failed: rank 5 on e-1: exit status 9"));
}

TEST_CASE(
    "signals, memory and missing programs of a rank are its job's; a rank that ends is shown") {
  ends_fixture f{"ranks"};
  const auto rank_1 = [&](const std::string& script) {
    return f.submit("gpt2-7b", "[ $NODE_RANK = 1 ] && { " + script +
                                   "; }; trap 'exit 0' TERM; while :; do sleep 0.05; done");
  };
  CHECK(f.detail_once_failed(rank_1("kill -SEGV $$")) == "node e-1: exit status 139 (SIGSEGV)");
  // With more headroom no plan fits; rank 0 obeyed, and that has not finished the job.
  const auto memory = rank_1("echo 'CUDA out of memory'; exit 1");
  CHECK_THAT(f.detail_once_failed(memory),
             Catch::Contains("out of memory") &&
                 Catch::EndsWith("; most recently: node e-1: exit status 1: CUDA out of memory"));
  const auto missing =
      f.submit("gpt2-7b", "", [&](job_spec& s) { s.program.command = {"no-such-program"}; });
  CHECK_THAT(f.detail_once_failed(missing), Catch::Matches("node e-[01]: .*no-such-program.*"));
  const auto outlives = f.submit("gpt2-7b",
                                 "[ $NODE_RANK = 1 ] && exit 0; trap 'exit 0' TERM; "
                                 "while :; do sleep 0.05; done",
                                 [](job_spec& s) { s.program.rank_wait_s = 1.5; });
  CHECK(runtime::wait_until(
      [&] { return f.job(outlives).ended_ranks == std::vector<std::uint32_t>{1}; }, long_s, 0.1));
  CHECK(f.detail_once_failed(outlives) ==
        "node e-0 was still running 1.5 s (rank_wait_s) after node e-1 had ended");
}

TEST_CASE("a rank that fails because another one's node is lost costs an attempt, not the job") {
  ends_fixture f{"rank-beside-loss"};
  // Rank 1 notices at once that rank 0 is gone, long before the controller can.
  const auto id =
      f.submit("gpt2-7b",
               "[ $TROUPE_ATTEMPT = 1 ] || exit 0; "
               "if [ $NODE_RANK = 0 ]; then echo $$ > pid.new; mv pid.new pid; sleep 1000; fi; "
               "until [ -e pid ]; do sleep 0.05; done; touch up; "
               "while kill -0 $(cat pid); do sleep 0.05; done; exit 9");
  REQUIRE(f.has("up"));
  f.cluster.cluster->kill("e-0");
  REQUIRE(f.is(id, job_state::waiting));
  CHECK_FALSE(f.job(id).failed_rank);
  REQUIRE(f.cluster.cluster->restart("e-0"));
  CHECK(f.is(id, job_state::finished));
  CHECK(f.job(id).progress.attempts == 2);
}

namespace {

/// Suspends a program on two nodes while the controller or a node is killed, and resumes it. It
/// must never count as finished, nor go back behind what the controller had as saved, and no two
/// attempts may run at the same time.
void stops_meet_kills(int points) {
  ends_fixture f{"stops-meet-kills"};
  const auto id = f.submit("gpt2-7b", saving("both", "exit 0"),
                           [](job_spec& s) { s.limits.max_restarts = 1000; });
  random_source random{7};
  std::uint64_t saved = 0;
  for (int i = 0; i < points; ++i) {
    INFO("point " << i << ", saved " << saved);
    const auto attempt = f.job(id).progress.attempts;
    REQUIRE(runtime::wait_until(
        [&] {
          const auto s = f.job(id);
          return s.state == job_state::running && s.iteration > s.progress.iterations_done;
        },
        long_s, 0.1));
    const auto start = last_start(f.where / "both.starts");
    CHECK(start.first >= attempt);
    CHECK(start.second >= saved);
    const auto* victim = std::array{"controller", "e-0", "e-1"}[random.below(3)];
    const bool kill_first = random.chance(0.3);
    const double gap_s = 0.3 * random.uniform();
    const auto kill = [&] {
      f.cluster.cluster->kill(victim);
      REQUIRE(f.cluster.cluster->restart(victim));
    };
    if (kill_first) kill(), runtime::pause(gap_s);
    REQUIRE(f.suspend(id, true).done);
    if (!kill_first) runtime::pause(gap_s), kill();
    REQUIRE(f.is(id, job_state::waiting));
    const auto s = f.job(id);
    CHECK(s.waiting_reason == "suspended");
    CHECK(s.progress.iterations_done >= saved);
    saved = s.progress.iterations_done;
    REQUIRE(f.suspend(id, false).done);
  }
  CHECK(saved > 0);
  std::ofstream{f.where / "finish"};
  CHECK(f.is(id, job_state::finished));
}

}  // namespace

TEST_CASE(
    "a stop that meets a kill of a node or the controller neither ends nor resets a program") {
  stops_meet_kills(5);
}

TEST_CASE("50 stops that meet kills neither end nor reset a program", "[.long]") {
  stops_meet_kills(50);
}

TEST_CASE("a program whose GPUs sia changes goes on where it was", "[.long]") {
  ends_fixture f{"sia", "sia"};
  const auto id = f.submit("gpt2-124m", saving("alone", "exit 0"), [](job_spec& s) {
    s.global_batch = 64;
    s.iterations = 10'000'000;
  });
  REQUIRE(runtime::wait_until([&] { return f.job(id).progress.attempts == 2; }, 200, 0.5));
  REQUIRE(runtime::wait_until([&] { return last_start(f.where / "alone.starts").first == 2; },
                              long_s, 0.1));
  CHECK(last_start(f.where / "alone.starts").second > 0);
  std::ofstream{f.where / "finish"};
  CHECK(f.is(id, job_state::finished));
}
