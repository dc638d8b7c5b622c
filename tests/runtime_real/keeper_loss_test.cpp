// Keepers that are killed or stopped, and the process that starts them.

#include "harness/facts.hpp"
#include "runtime/host/state_directory.hpp"
#include "runtime_real/kept_world.hpp"

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

TEST_CASE("a state directory is taken although a keeper of its dead process is stopped") {
#ifdef __SANITIZE_THREAD__
  WARN("skipped: this sanitizer allows no threads after a fork");
  return;
#endif
  scratch dir;
  const auto state = dir / "state";
  pid_t keeper = 0, daemon = 0;
  {
    forked owner{[&] {
      auto taken = state_directory::open(state);
      std::filesystem::create_directories(process_records(state));
      auto server = keeper_server::start(process_records(state), (*taken)->lock());
      auto p = (*server)->run(with_daemon(dir, "sleep 1000"), seconds_from_now(no_limit_s));
      for (;;) ::pause();
    }};
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
