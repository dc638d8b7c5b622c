// Keepers that are killed or stopped, and the process that starts them.

#include <sys/ptrace.h>

#include "harness/facts.hpp"
#include "runtime/keeper/state_directory.hpp"
#include "runtime/kept_world.hpp"

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::test;

TEST_CASE("the program of a killed keeper dies with it, and is reported as lost") {
  kept_world w;
  auto p = w.run(shell("sh -c 'echo $$ > " + w.dir / "child" + "; sleep 1000' & echo $$ > " +
                       w.dir / "program" + "; wait"));
  const auto program = written_pid(w.dir / "program"), child = written_pid(w.dir / "child");
  ::kill(parent_of(program), SIGKILL);
  const auto end = end_of(*p);
  CHECK(end.what == kept_end::how::lost);
  CHECK(end.status == 128 + SIGKILL);
  CHECK(gone(program));
  CHECK(gone(child));
}

TEST_CASE("a killed process that starts keepers is replaced, and its programs go on") {
  kept_world w;
  auto first = w.run(shell("echo $$ > " + w.dir / "first" + "; exec sleep 1000"));
  const auto program = written_pid(w.dir / "first");
  const auto server = server_of(program), guard = parent_of(server);
  SECTION("itself") {
    ::kill(server, SIGKILL);
    REQUIRE(eventually([&] { return !children_of(guard).empty() && gone(server); }));
  }
  SECTION("the one that replaces it") {
    ::kill(guard, SIGKILL);
    REQUIRE(eventually([&] { return gone(guard); }));
  }
  CHECK(w.server->alive());
  CHECK_FALSE(first->poll());
  auto second = w.run(shell("exit 3"));
  CHECK(end_of(*second).status == 3);
  CHECK_FALSE(gone(program));
  first->kill();
  CHECK(end_of(*first).what == kept_end::how::exited);
}

TEST_CASE("that no process is left that starts keepers is known") {
  kept_world w;
  auto p = w.run(shell("echo $$ > " + w.dir / "program" + "; exec sleep 1000"));
  const auto server = server_of(written_pid(w.dir / "program")), guard = parent_of(server);
  ::kill(guard, SIGKILL);
  ::kill(server, SIGKILL);
  CHECK(eventually([&] { return !w.server->alive(); }));
  const auto refused = w.server->run(shell("true"), seconds_from_now(no_limit_s));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == reason::kind::unavailable);
}

TEST_CASE("a stopped keeper's program and its daemons are killed by the process that started it") {
  kept_world w;
  const double lease_s = GENERATE(1e9, 0.5);
  const bool ignores = GENERATE(false, true);
  auto p = w.run(with_daemon(w.dir, ignores ? "trap '' TERM; while :; do sleep 1000; done"
                                            : "kill -STOP $PPID; sleep 1000"),
                 lease_s);
  const auto daemon = written_pid(w.dir / "daemon"), program = written_pid(w.dir / "program");
  const auto keeper = parent_of(program);
  CHECK_FALSE(p->poll());  // it reports who the program and its keeper are
  ::kill(keeper, SIGSTOP);
  if (lease_s > 1) ignores ? p->terminate(0.1) : p->kill();
  const auto begun_s = seconds_from_now(0);
  const auto end = end_of(*p);
  CHECK(seconds_from_now(0) - begun_s < 10);
  CHECK(gone(program));
  CHECK(gone(daemon));
  CHECK(end.what == (lease_s > 1 ? kept_end::how::exited : kept_end::how::lease_expired));
  CHECK(eventually([&] { return gone(keeper); }));
}

namespace {

/// In a process of its own: owns the state directory, and keeps a program until it is killed.
void keep_running(const std::string& state, const process_options& program) {
  auto taken = state_directory::open(state);
  std::filesystem::create_directories(process_records(state));
  auto server = keeper_server::start(process_records(state), (*taken)->lock());
  auto p = (*server)->run(program, seconds_from_now(no_limit_s));
  for (;;) ::pause();
}

}  // namespace

TEST_CASE("a state directory is taken although a keeper of its dead process is stopped") {
#ifdef __SANITIZE_THREAD__
  WARN("skipped: this sanitizer allows no threads after a fork");
  return;
#endif
  scratch dir;
  const auto state = dir / "state";
  pid_t keeper = 0, daemon = 0;
  {
    forked owner{[&] { keep_running(state, with_daemon(dir, "sleep 1000")); }};
    daemon = written_pid(dir / "daemon");
    keeper = parent_of(written_pid(dir / "program"));
    ::kill(keeper, SIGSTOP);
  }
  CHECK_FALSE(gone(daemon));
  const auto taken = state_directory::open(state);
  INFO((taken ? std::string{} : taken.error().text));
  CHECK(taken);
  CHECK(gone(daemon));
  CHECK(eventually([&] { return gone(keeper); }));
}

namespace {

/// A world whose guard and server are known, and a program that they have started.
struct started_world : kept_world {
  started_world() {
    first = run(shell("echo $$ > " + dir / "first" + "; exec sleep 1000"));
    program = written_pid(dir / "first");
    server_pid = server_of(program);
    guard = parent_of(server_pid);
  }
  std::unique_ptr<kept_program> first;
  pid_t program = 0, server_pid = 0, guard = 0;
};

}  // namespace

TEST_CASE("processes that start keepers are woken if they were stopped, and the program runs") {
  started_world w;
  SECTION("the server") {
    ::kill(w.server_pid, SIGSTOP);
  }
  SECTION("the server's guard, and the server is gone") {
    ::kill(w.guard, SIGSTOP);
    ::kill(w.server_pid, SIGKILL);
    REQUIRE(eventually([&] { return gone(w.server_pid); }));
  }
  SECTION("both") {
    ::kill(w.guard, SIGSTOP);
    ::kill(w.server_pid, SIGSTOP);
  }
  auto second = w.run(shell("exit 3"));
  const auto end = end_of(*second);
  CHECK(end.what == kept_end::how::exited);
  CHECK(end.status == 3);
  CHECK_FALSE(gone(w.program));
  CHECK_FALSE(w.first->poll());
}

TEST_CASE("a process that starts keepers and hangs is replaced, and what waited never runs") {
  started_world w;
  // A debugger's stop, which SIGCONT does not end.
  if (::ptrace(PTRACE_SEIZE, w.server_pid, nullptr, nullptr) != 0) {
    WARN("skipped: this process may not trace others");
    return;
  }
  REQUIRE(::ptrace(PTRACE_INTERRUPT, w.server_pid, nullptr, nullptr) == 0);
  REQUIRE(::waitpid(w.server_pid, nullptr, 0) == w.server_pid);
  auto waits = w.run(shell("echo ran > " + w.dir / "ran"));
  const auto end = end_of(*waits);
  REQUIRE(::waitpid(w.server_pid, nullptr, 0) == w.server_pid);  // its parent sees its end
  CHECK(end.what == kept_end::how::no_room);
  CHECK_FALSE(end.why.empty());
  CHECK(eventually([&] { return gone(w.server_pid); }));
  auto next = w.run(shell("exit 4"));
  CHECK(end_of(*next).status == 4);
  CHECK_FALSE(std::filesystem::exists(w.dir / "ran"));
  CHECK_FALSE(gone(w.program));
}

TEST_CASE("a program that waits for a stopped process to start it ends at once, and never runs") {
  started_world w;
  ::kill(w.server_pid, SIGSTOP);
  enum class way { lease, kill, terminate };
  const auto ends_by = GENERATE(way::lease, way::kill, way::terminate);
  const bool by_lease = ends_by == way::lease;
  auto waits = w.run(shell("echo ran > " + w.dir / "ran"), by_lease ? 0.1 : 1e9);
  if (ends_by == way::kill) waits->kill();
  if (ends_by == way::terminate) waits->terminate(1000);
  const auto begun_s = seconds_from_now(0);
  const auto end = end_of(*waits);
  CHECK(seconds_from_now(0) - begun_s < 30);
  CHECK(end.what == (by_lease ? kept_end::how::lease_expired : kept_end::how::exited));
  ::kill(w.server_pid, SIGCONT);
  auto next = w.run(shell("exit 4"));
  CHECK(end_of(*next).status == 4);
  CHECK_FALSE(std::filesystem::exists(w.dir / "ran"));
}

TEST_CASE("the end of a stopped keeper's program is noticed") {
  started_world w;
  CHECK_FALSE(w.first->poll());  // it reports who the program and its keeper are
  ::kill(parent_of(w.program), SIGSTOP);
  ::kill(w.program, SIGKILL);
  CHECK(end_of(*w.first).status == 128 + SIGKILL);
}

TEST_CASE("the owner of stopped processes that start keepers ends, and they with it") {
  started_world w;
  const bool guard_too = GENERATE(false, true);
  if (guard_too) ::kill(w.guard, SIGSTOP);
  ::kill(w.server_pid, SIGSTOP);
  w.first.reset();
  const auto begun_s = seconds_from_now(0);
  w.server.reset();
  CHECK(seconds_from_now(0) - begun_s < 30);
  CHECK(gone(w.server_pid));
  CHECK(gone(w.guard));
}

TEST_CASE("a state directory is taken although the processes that start keepers are stopped") {
#ifdef __SANITIZE_THREAD__
  WARN("skipped: this sanitizer allows no threads after a fork");
  return;
#endif
  scratch dir;
  const auto state = dir / "state";
  pid_t guard = 0, server_pid = 0;
  {
    forked owner{
        [&] { keep_running(state, shell("echo $$ > " + dir / "program" + "; exec sleep 1000")); }};
    server_pid = server_of(written_pid(dir / "program"));
    guard = parent_of(server_pid);
    REQUIRE(
        eventually([&] { return std::filesystem::exists(process_records(state) + ".starters"); }));
    ::kill(guard, SIGSTOP);
    ::kill(server_pid, SIGSTOP);
    SECTION("both") {}
    SECTION("the server, whose guard is gone") {
      ::kill(guard, SIGKILL);
    }
  }
  const auto taken = state_directory::open(state);
  INFO((taken ? std::string{} : taken.error().text));
  CHECK(taken);
  CHECK(eventually([&] { return gone(guard) && gone(server_pid); }));
}
