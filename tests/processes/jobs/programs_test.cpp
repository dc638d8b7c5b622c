#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "harness/sanitized.hpp"
#include "harness/scratch.hpp"
#include "processes/fixture.hpp"
#include "runtime/host/realtime.hpp"
#include "runtime/process/free_ports.hpp"

// Programs and their nodes: killed, stopped and hostile ones, and wrong clocks, cost no other job,
// and two attempts of a job never run at the same time.

using namespace troupe;
using namespace troupe::test;

namespace {

std::size_t lines_of(const fs::path& file) {
  std::ifstream in{file};
  return static_cast<std::size_t>(
      std::count(std::istreambuf_iterator<char>{in}, std::istreambuf_iterator<char>{}, '\n'));
}

/// A program whose daemon, in a session of its own, holds a lock as long as it lives. The first
/// attempt goes on for ever. The second ends when its own daemon has the lock, which it gets only
/// if the first one's is dead by then.
std::string one_at_a_time(const fs::path& dir) {
  return fmt::format(
      "cd {}; "
      "(env -u TROUPE_GROUP setsid flock -n lock sh -c 'touch held; exec sleep 1000' &); "
      "until [ -e held ]; do sleep 0.05; done; rm held; echo $TROUPE_LEASE >> attempts; "
      "if [ $(wc -l < attempts) -ge 2 ]; then exit 0; fi; sleep 1000",
      dir.string());
}

std::string node_of(const query_reply& r, job_id id) {
  for (const auto& j : r.jobs)
    if (j.job == id) return r.nodes[j.where.front().node].name;
  return {};
}

const job_status& job_in(const query_reply& r, job_id id) {
  return *std::find_if(r.jobs.begin(), r.jobs.end(), [&](const auto& j) { return j.job == id; });
}

/// The environment of the processes that are started while this lives.
class preloaded_clock {
 public:
  explicit preloaded_clock(const fs::path& directory) : directory_{directory} {
    fs::create_directories(directory_);
    ::setenv("LD_PRELOAD", SHIFTED_CLOCK_LIBRARY, 1);
    ::setenv("SHIFTED_CLOCK", directory_.c_str(), 1);
  }
  ~preloaded_clock() {
    ::unsetenv("LD_PRELOAD");
    ::unsetenv("SHIFTED_CLOCK");
  }
  void set(const std::string& whose, long ahead_s) const {
    std::ofstream{directory_ / "new"} << ahead_s << '\n';
    fs::rename(directory_ / "new", directory_ / whose);
  }

 private:
  fs::path directory_;
};

}  // namespace

TEST_CASE("programs that a real-time node starts run at normal priority") {
  const auto path = shipped("clusters/demo.yaml");
  std::set<std::string> nodes;
  const auto c = formats::load_cluster(path.string());
  REQUIRE(c);
  for (const auto& n : c->nodes) nodes.insert(n.name);
  fixture f{"realtime", path, cli::default_policy, nodes};
  REQUIRE(f.wait_for_nodes());
  if (!runtime::has_realtime_priority(f.cluster->id(*nodes.begin()))) {
    WARN("skipped: real-time priority is not permitted here");
    return;
  }
  constexpr int policy_field = 41;  // proc(5)
  f.submit("policy", fmt::format("cut -d ' ' -f {} /proc/self/stat > {}/policy", policy_field,
                                 f.state.string()));
  REQUIRE(f.wait_until(all_final));
  int policy = -1;
  std::ifstream{f.state / "policy"} >> policy;
  CHECK(policy == SCHED_OTHER);
}

TEST_CASE("SIGKILL of a node ends its programs' daemons before the job runs on another node") {
  fixture f{"daemon-killed"};
  REQUIRE(f.wait_for_nodes());
  const auto id = f.submit("daemon", one_at_a_time(f.state));
  REQUIRE(f.wait_until([&](const auto&) { return lines_of(f.state / "attempts") == 1; }));
  f.cluster->kill(node_of(f.jobs(), id));
  REQUIRE(f.wait_until(all_final));
  CHECK(f.jobs().jobs.front().state == job_state::finished);
  CHECK(f.jobs().jobs.front().progress.attempts == 2);
}

TEST_CASE(
    "SIGSTOP of a node ends its programs with its lease, before the job runs on another node") {
  fixture f{"daemon-stopped"};
  REQUIRE(f.wait_for_nodes());
  const auto id = f.submit("daemon", one_at_a_time(f.state));
  REQUIRE(f.wait_until([&](const auto&) { return lines_of(f.state / "attempts") == 1; }));
  const auto victim = f.cluster->id(node_of(f.jobs(), id));
  ::kill(victim, SIGSTOP);
  const bool ended = f.wait_until(all_final);
  ::kill(victim, SIGCONT);
  REQUIRE(ended);
  CHECK(f.jobs().jobs.front().state == job_state::finished);
  CHECK(f.jobs().jobs.front().progress.attempts == 2);
  CHECK(f.wait_for_nodes());  // it is of use again
}

TEST_CASE("a stopped program gets the grace period of its environment to save, and no longer") {
  fixture f{"grace"};
  REQUIRE(f.wait_for_nodes());
  const auto in_state = [&](const char* script) {
    return fmt::format("cd {}; {}", f.state.string(), script);
  };
  // Saving takes it almost all of the time; the other one does not end by itself.
  const auto saves = f.submit(
      "saves", in_state("trap 'sleep $((TROUPE_GRACE_S - 2)); echo x > saved; exit 0' TERM; "
                        "touch a; while :; do sleep 0.05; done"));
  const auto ignores =
      f.submit("ignores", in_state("trap 'echo x > asked' TERM; touch b; "
                                   "echo $TROUPE_GRACE_S > grace; "
                                   "while :; do echo x >> alive; sleep 0.05; done"));
  REQUIRE(f.wait_until([&](const auto&) {
    return fs::exists(f.state / "a") && fs::exists(f.state / "b") &&
           lines_of(f.state / "grace") == 1;
  }));
  double grace_s = 0;
  std::ifstream{f.state / "grace"} >> grace_s;
  REQUIRE(grace_s > 2);
  const runtime::stopwatch waited;
  for (const auto id : {saves, ignores}) REQUIRE(f.client->ask(cancel_job{0, id}, long_s).reply);
  REQUIRE(f.wait_until(all_final));
  CHECK(waited.s() >= grace_s);
  CHECK(lines_of(f.state / "saved") == 1);
  CHECK(lines_of(f.state / "asked") == 1);
  const auto lines = lines_of(f.state / "alive");
  runtime::pause(0.3);
  CHECK(lines_of(f.state / "alive") == lines);
}

TEST_CASE("a report that is huge, a FIFO or a device does no harm") {
  fixture f{"reports"};
  REQUIRE(f.wait_for_nodes());
  f.submit("huge",
           "truncate -s 300M $TROUPE_REPORT; printf '\\niterations: 7\\n' >> $TROUPE_REPORT; "
           "sleep 4");
  f.submit("fifo", "mkfifo $TROUPE_REPORT; sleep 4");
  f.submit("device", "ln -s /dev/zero $TROUPE_REPORT; sleep 4");
  f.submit("numbers",
           "echo 'iterations: 1e300' > $TROUPE_REPORT; echo 'peak_bytes: inf' >> "
           "$TROUPE_REPORT; sleep 4");
  REQUIRE(f.wait_until(all_final));
  for (const auto& j : f.jobs().jobs) {
    INFO(j.name << ": " << j.detail);
    CHECK(j.state == job_state::finished);
    CHECK(j.progress.attempts == 1);
    CHECK(j.peak_bytes == 0);
  }
}

TEST_CASE("wall clocks that step back and forth cost no lease, and move no deadline") {
  if (harness::sanitized) {
    WARN("skipped: a sanitizer's library wants to be the first that is loaded");
    return;
  }
  fixture f{"clocks"};
  preloaded_clock clock{f.state / "clock"};
  for (const auto& name : f.cluster->names()) REQUIRE(f.cluster->restart(name));
  REQUIRE(f.wait_for_nodes());
  const auto script = fmt::format("until [ -e {}/enough ]; do sleep 0.1; done", f.state.string());
  const auto with_deadline = [&](const char* name, double deadline_s) {
    auto spec = f.program(name, script);
    spec.limits.deadline_s = deadline_s;
    return f.submit(spec);
  };
  const auto id = f.submit("steady", script);
  const auto soon = with_deadline("soon", 20), later = with_deadline("later", 3000);
  REQUIRE(f.wait_until([](const query_reply& r) {
    return std::ranges::all_of(r.jobs, [](const auto& j) { return j.state == job_state::running; });
  }));
  const auto node = node_of(f.jobs(), id);
  // A restart before the first step of a clock is not what this test is about.
  const auto attempts = job_in(f.jobs(), id).progress.attempts;
  for (const auto& [whose, ahead_s] :
       {std::pair{node, -3600L}, {"controller", 600L}, {node, 600L}, {"controller", -3600L}}) {
    clock.set(std::to_string(f.cluster->id(whose)), ahead_s);
    runtime::pause(3);  // a lease and more
    INFO(whose << " " << ahead_s);
    CHECK(job_in(f.jobs(), id).state == job_state::running);
    CHECK(job_in(f.jobs(), id).progress.attempts == attempts);
    CHECK(job_in(f.jobs(), later).state == job_state::running);
    if (ahead_s > 0) CHECK(job_in(f.jobs(), soon).state == job_state::running);
  }
  // The controller's clock is an hour behind where it was when that was submitted.
  REQUIRE(f.wait_until([&](const query_reply& r) { return is_final(job_in(r, soon).state); }));
  CHECK_THAT(job_in(f.jobs(), soon).detail, Catch::StartsWith("its deadline has passed"));
  // Nor does a controller that starts again believe the wall clock.
  clock.set("all", 7200);
  f.cluster->kill("controller");
  REQUIRE(f.cluster->restart("controller"));
  REQUIRE(f.wait_for_nodes());
  CHECK(job_in(f.jobs(), later).state == job_state::running);
  std::ofstream{f.state / "enough"};
  REQUIRE(f.wait_until(all_final));
  CHECK(job_in(f.jobs(), id).state == job_state::finished);
  CHECK(job_in(f.jobs(), id).progress.attempts == attempts);
  CHECK(job_in(f.jobs(), later).state == job_state::finished);

  // A host that starts again with a clock that is behind is the newer one all the same.
  clock.set("all", -7200);
  f.cluster->kill(node);
  REQUIRE(f.wait_until([&](const query_reply& r) {
    return std::any_of(r.nodes.begin(), r.nodes.end(), [](const auto& n) { return !n.present; });
  }));
  REQUIRE(f.cluster->restart(node));
  REQUIRE(f.wait_for_nodes());
  CHECK(f.cluster->ended().empty());
}

TEST_CASE("a program that has run for its time limit is terminated") {
  fixture f{"time-limit"};
  REQUIRE(f.wait_for_nodes());
  auto spec = f.program("long", "exec sleep 1000");
  spec.limits.time_limit_s = 2;
  const auto id = f.submit(spec);
  REQUIRE(f.wait_until(all_final));
  const auto j = job_in(f.jobs(), id);
  CHECK(j.state == job_state::failed);
  CHECK(j.exit_code == 128 + SIGTERM);
  CHECK_THAT(j.detail, Catch::StartsWith("its time limit has passed: time_limit_s is 2, it ran "));
  CHECK_THAT(j.detail, Catch::EndsWith(" s in 1 attempt"));
}

TEST_CASE("a program gets a MASTER_PORT at which it can listen, though others listen beside it") {
  if (!fs::exists("/usr/bin/python3")) {
    WARN("skipped: no python3");
    return;
  }
  const scratch directory;
  const auto one_node =
      directory.write("one.yaml",
                      "name: one\ndatacenters:\n  - name: here\n    nodes:\n"
                      "      - {name: n, gpu: A40, gpus: 2, intra: pcie4, inter: eth100}\n"
                      "settings: {heartbeat_s: 0.2, lease_s: 5}\n");
  fixture f{"ports", one_node, cli::default_policy};
  REQUIRE(f.wait_for_nodes());
  const auto port_of = [&](const std::string& name) {
    f.submit(name, fmt::format("echo $MASTER_PORT > {}/{}", f.state.string(), name));
    REQUIRE(f.wait_until(all_final));
    int port = 0;
    std::ifstream{f.state / name} >> port;
    return port;
  };
  // Until two successive ports show which one the next lease would get.
  int port = port_of("p0");
  for (int i = 1, before = 0; i < 20; ++i) {
    before = std::exchange(port, port_of(fmt::format("p{}", i)));
    if (port == before + 1) break;
  }
  const auto [low, high] = runtime::ports_for_programs();
  CHECK(port >= low);
  CHECK(port <= high);
  const int held = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<std::uint16_t>(port + 1));
  REQUIRE(::bind(held, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
  REQUIRE(::listen(held, 1) == 0);
  const auto id = f.submit("bind",
                           "exec /usr/bin/python3 -c \"import os, socket; s = socket.socket(); "
                           "s.bind(('', int(os.environ['MASTER_PORT']))); s.listen()\"");
  REQUIRE(f.wait_until(all_final));
  CHECK(job_in(f.jobs(), id).state == job_state::finished);
  CHECK(job_in(f.jobs(), id).progress.attempts == 2);
  ::close(held);
}

TEST_CASE("a second process on a node's state directory is refused, and the job continues") {
  fixture f{"second-node"};
  REQUIRE(f.wait_for_nodes());
  const auto id = f.submit("steady", "sleep 3");
  REQUIRE(f.wait_until(
      [](const query_reply& r) { return r.jobs.front().state == job_state::running; }));
  const auto node = node_of(f.jobs(), id);
  runtime::process_options o;
  const auto output = f.state / "second.log";
  o.command = {TROUPE_PROGRAM, "node",
               "--cluster",    shipped("clusters/demo.yaml").string(),
               "--state",      (f.state / node).string(),
               "--name",       node};
  o.command.insert(o.command.end(), {"--gateway", "ipc:///nowhere"});
  o.output = output.string();
  auto second = runtime::process::start(o);
  REQUIRE(second);
  std::optional<int> status;
  const runtime::stopwatch waited;
  while (!(status = (*second)->poll()) && waited.s() < long_s) runtime::pause(0.05);
  CHECK(status == 1);
  std::ifstream in{output};
  const std::string said{std::istreambuf_iterator<char>{in}, {}};
  INFO(said);
  CHECK(said.find("there can be only one") != std::string::npos);
  REQUIRE(f.wait_until(all_final));
  CHECK(f.jobs().jobs.front().state == job_state::finished);
  CHECK(f.jobs().jobs.front().progress.attempts == 1);
}

TEST_CASE("a job whose node process is superseded is queued again and does not fail") {
  fixture f{"displaced"};
  REQUIRE(f.wait_for_nodes());
  const auto id = f.submit(
      "displaced", fmt::format("cd {}; echo $TROUPE_LEASE >> attempts; "
                               "if [ $(wc -l < attempts) -ge 2 ]; then exit 0; fi; sleep 1000",
                               f.state.string()));
  REQUIRE(f.wait_until([&](const auto&) { return lines_of(f.state / "attempts") == 1; }));
  const auto node = node_of(f.jobs(), id);
  runtime::process_options o;
  std::ifstream in{fmt::format("/proc/{}/cmdline", f.cluster->id(node))};
  for (std::string word; std::getline(in, word, '\0');) o.command.push_back(word);
  const auto other = f.state / "other";
  *(std::find(o.command.begin(), o.command.end(), "--state") + 1) = other.string();
  // Without a common state directory, the process that started in the later minute is the newer
  // one: this file makes the second process the newer one.
  fs::create_directories(other);
  fs::permissions(other, fs::perms::owner_all);
  std::ofstream{other / "starts"} << (1 << 27) << '\n';
  auto second = runtime::process::start(o);
  REQUIRE(second);
  REQUIRE(f.wait_until(all_final));
  CHECK(f.jobs().jobs.front().state == job_state::finished);
  CHECK(f.jobs().jobs.front().progress.attempts == 2);
}
