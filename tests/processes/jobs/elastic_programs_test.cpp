#include <sys/types.h>

#include <csignal>
#include <fstream>
#include <vector>

#include "harness/scratch.hpp"
#include "harness/shell.hpp"
#include "processes/fixture.hpp"

// Elastic programs that use the Python package, as processes of a cluster: stops that they obey,
// ignore, or are saving for when the controller dies.

using namespace troupe;
using namespace troupe::test;

namespace {

/// Counts iterations until there is a file `finish`. It saves when it is asked to stop: "slow" once
/// there is a file `go`. "deaf" saves ten iterations and obeys neither a request nor SIGTERM.
constexpr const char* sleeper = R"(
import os, signal, sys, time, troupe

kind = sys.argv[1]
if kind == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
run = troupe.init()

def note(file, *words):
    with open(file + ".new", "w") as out:
        print(*words, file=out)
    os.replace(file + ".new", file)

done = run.resume_from
note("start", run.attempt, done, os.getpid())
while not os.path.exists("finish"):
    if kind != "deaf" and run.should_stop():
        note("asked", done)
        while kind == "slow" and not os.path.exists("go"):
            time.sleep(0.02)
        run.saved(done)
        sys.exit(0)
    time.sleep(0.02)
    done += 1
    run.report(done)
    if done == 10:
        run.saved(done)
run.finish()
)";

/// The notes of a program that starts.
struct sleeper_start {
  std::uint32_t attempt = 0;
  std::uint64_t iteration = 0;
  pid_t process = 0;
};

/// A cluster of one node with one GPU, and the program's directory.
struct sleeper_fixture {
  explicit sleeper_fixture(const char* name) : cluster{name, one_node(where), cli::default_policy} {
    REQUIRE(cluster.wait_for_nodes());
  }
  static std::string one_node(const scratch& where) {
    return where.write("cluster.yaml",
                       "name: sleepers\n"
                       "datacenters:\n"
                       "  - name: here\n"
                       "    nodes:\n"
                       "      - {name: n, gpu: A100-40GB, gpus: 1, intra: pcie4, inter: eth25}\n"
                       "settings: {heartbeat_s: 0.1, lease_s: 3}\n");
  }
  job_id submit(const char* kind, double grace_s) {
    auto s = fixture::program("sleeper", "");
    s.program.command = {"python3", where.write("sleeper.py", sleeper), kind};
    s.iterations = 1'000'000;
    s.program.working_directory = where.path();
    s.program.elastic.emplace();
    s.program.grace_s = grace_s;
    return cluster.submit(s);
  }
  job_status job(job_id id) { return cluster.job(id); }
  elastic_status elastic(job_id id) {
    const auto e = job(id).elastic;
    REQUIRE(e);
    return *e;
  }
  void suspend(job_id id, bool on) {
    auto reply = cluster.client->ask(suspend_job{0, id, on}, long_s).reply;
    REQUIRE(reply);
    REQUIRE(std::get<suspend_reply>(reply->first).done);
  }
  bool has(const char* file) {
    return runtime::wait_until([&] { return fs::exists(where / file); }, long_s, 0.02);
  }
  /// The start of this attempt, once it has reported more iterations than ten and than it began
  /// with.
  sleeper_start runs(job_id id, std::uint32_t attempt) {
    sleeper_start s;
    const bool so = runtime::wait_until(
        [&] {
          std::ifstream{where / "start"} >> s.attempt >> s.iteration >> s.process;
          return s.attempt == attempt &&
                 job(id).iteration > std::max<std::uint64_t>(s.iteration, 10);
        },
        long_s, 0.05);
    if (!so) cluster.show_logs();
    REQUIRE(so);
    return s;
  }
  std::uint64_t asked_at() {
    REQUIRE(has("asked"));
    std::uint64_t n = 0;
    std::ifstream{where / "asked"} >> n;
    fs::remove(where / "asked");
    return n;
  }
  void touch(const char* file) { std::ofstream{where / file}; }

  scratch where;
  fixture cluster;
};

bool is_alive(pid_t process) {
  return ::kill(process, 0) == 0;
}

bool lacks_python() {
  if (run("python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))'").status == 0) return false;
  WARN("not tested: there is no python3 of 3.9 or newer");
  return true;
}

}  // namespace

TEST_CASE("an elastic program is stopped by suspend between two iterations and goes on there") {
  if (lacks_python()) return;
  sleeper_fixture f{"sleeper-obeys"};
  const auto id = f.submit("obeys", 60);
  const auto first = f.runs(id, 1);
  CHECK(first.iteration == 0);
  f.suspend(id, true);
  REQUIRE(f.cluster.is(id, job_state::waiting));
  const auto saved = f.asked_at();
  CHECK(f.job(id).progress.iterations_done == saved);
  CHECK_FALSE(is_alive(first.process));
  f.suspend(id, false);
  CHECK(f.runs(id, 2).iteration == saved);
  const auto e = f.elastic(id);
  CHECK(e.stops == 1);
  CHECK(e.lost_iterations == 0);
  CHECK(e.start_s);
  CHECK(e.save_s);
  CHECK(e.pause_s);
  f.touch("finish");
  CHECK(f.cluster.is(id, job_state::finished));
}

TEST_CASE("an elastic program that ignores its stop is killed after its grace, and only then") {
  if (lacks_python()) return;
  sleeper_fixture f{"sleeper-deaf"};
  constexpr double grace_s = 1.5;
  const auto id = f.submit("deaf", grace_s);
  const auto first = f.runs(id, 1);
  const runtime::stopwatch since_the_stop;
  f.suspend(id, true);
  REQUIRE(runtime::wait_until([&] { return !is_alive(first.process); }, long_s, 0.02));
  CHECK(since_the_stop.s() > grace_s);
  REQUIRE(f.cluster.is(id, job_state::waiting));
  CHECK(f.job(id).progress.iterations_done == 10);
  CHECK(f.elastic(id).lost_iterations > 0);
  f.suspend(id, false);
  CHECK(f.runs(id, 2).iteration == 10);
  f.touch("finish");
  CHECK(f.cluster.is(id, job_state::finished));
}

TEST_CASE("an elastic program keeps its saved iterations if the controller dies during its stop") {
  if (lacks_python()) return;
  sleeper_fixture f{"sleeper-slow"};
  const auto id = f.submit("slow", 60);
  std::uint64_t saved = 0;
  // The program saves while there is no controller, and after there is one again.
  for (const std::uint32_t attempt : {1, 2}) {
    CAPTURE(attempt);
    const auto start = f.runs(id, attempt);
    CHECK(start.iteration == saved);
    f.suspend(id, true);
    saved = f.asked_at();
    f.cluster.cluster->kill("controller");
    if (attempt == 1) f.touch("go");
    if (attempt == 1)
      REQUIRE(runtime::wait_until([&] { return !is_alive(start.process); }, long_s, 0.02));
    REQUIRE(f.cluster.cluster->restart("controller"));
    if (attempt == 2) {
      CHECK(f.job(id).state == job_state::stopping);
      f.touch("go");
    }
    REQUIRE(f.cluster.is(id, job_state::waiting));
    const auto s = f.job(id);
    CHECK(s.progress.iterations_done == saved);
    CHECK(s.progress.attempts == attempt);
    CHECK(f.elastic(id).lost_iterations == 0);
    CHECK_FALSE(is_alive(start.process));
    fs::remove(f.where / "go");
    f.suspend(id, false);
  }
  CHECK(f.runs(id, 3).iteration == saved);
  f.touch("finish");
  CHECK(f.cluster.is(id, job_state::finished));
}

TEST_CASE("what a running program has saved outlives its controller and its node") {
  if (lacks_python()) return;
  sleeper_fixture f{"sleeper-both"};
  const auto id = f.submit("deaf", 60);
  f.runs(id, 1);
  REQUIRE(runtime::wait_until([&] { return f.elastic(id).saved == 10; }, long_s, 0.05));
  f.cluster.cluster->kill("controller");
  f.cluster.cluster->kill("n");
  REQUIRE(f.cluster.cluster->restart("controller"));
  REQUIRE(f.cluster.cluster->restart("n"));
  CHECK(f.runs(id, 2).iteration == 10);
  f.touch("finish");
  CHECK(f.cluster.is(id, job_state::finished));
}
