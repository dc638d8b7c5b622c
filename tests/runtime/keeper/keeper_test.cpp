#include "runtime/keeper/keeper.hpp"
#include "harness/facts.hpp"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/host/real_clock.hpp"
#include "runtime/keeper/keeper_process.hpp"
#include "runtime/keeper/state_directory.hpp"
#include "runtime/kept_world.hpp"

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::test;
TEST_CASE("a program's exit status is received even if its keeper exits with unread commands") {
  kept_world w;
  for (int i = 0; i < 50; ++i) {
    auto p = w.run(shell("exit 7"));
    std::optional<kept_end> end;
    // Send commands until it has ended, and only then read.
    for (pollfd keeper{p->events(), 0, 0}; (keeper.revents & POLLHUP) == 0; ::poll(&keeper, 1, 0))
      p->renew(seconds_from_now(no_limit_s));
    REQUIRE(eventually([&] { return (end = p->poll()).has_value(); }));
    REQUIRE(end->what == kept_end::how::exited);
    REQUIRE(end->status == 7);
  }
}

TEST_CASE(
    "a kept program runs with its directory, environment and log, and its exit status is "
    "reported") {
  kept_world w;
  auto o = shell("echo \"$COLOUR in $(pwd)\"; echo to-error >&2; exit 7");
  o.environment = {{"COLOUR", "green"}};
  o.directory = w.dir.path();
  o.output = w.dir / "log";
  auto p = w.run(o);
  CHECK(end_of(*p).what == kept_end::how::exited);
  CHECK(end_of(*p).status == 7);
  CHECK(contents(o.output) == "green in " + w.dir.path() + "\nto-error\n");
  CHECK_FALSE(w.on_record());
}

TEST_CASE("a command and an environment of a megabyte reach a kept program") {
  kept_world w;
  auto o = shell("echo $#; echo ${#A1}");
  o.command.push_back("sh");
  const std::string word(250, 'x'), value(100'000, 'y');
  o.command.insert(o.command.end(), 2000, word);
  for (const auto* name : {"A0", "A1", "A2", "A3", "A4"}) o.environment.emplace_back(name, value);
  o.output = w.dir / "log";
  auto p = w.run(o);
  CHECK(end_of(*p).status == 0);
  CHECK(contents(o.output) == "2000\n100000\n");
}

TEST_CASE("a kept program that cannot be started reports why") {
  kept_world w;
  const auto why = [&](const process_options& o) {
    const auto end = end_of(*w.run(o));
    CHECK(end.what == kept_end::how::not_started);
    return end.why;
  };
  CHECK_FALSE(w.server->run({.command = {}}, no_limit_s));
  CHECK(troupe::test::has_facts(why({.command = {"no-such-program"}}),
                                {"no-such-program", "No such file or directory"}));
  CHECK(troupe::test::has_facts(why({.command = {"true"}, .directory = "/no/such"}),
                                {"/no/such", "No such file or directory"}));
  const auto no_output = end_of(*w.run({.command = {"true"}, .output = "/no/such/log"}));
  CHECK(no_output.what == kept_end::how::no_room);  // its node's, not its own failure
  CHECK(troupe::test::has_facts(no_output.why, {"/no/such/log", "No such file or directory"}));
}

TEST_CASE("a kept program's daemons end with it") {
  kept_world w;
  auto p = w.run(with_daemon(w.dir, "exit 3"));
  const auto daemon = written_pid(w.dir / "daemon");
  CHECK(end_of(*p).status == 3);
  CHECK(gone(daemon));
}

TEST_CASE("a kept program that ignores SIGTERM is killed when its grace period is over") {
  kept_world w;
  auto p = w.run(with_daemon(w.dir, "trap '' TERM; while :; do sleep 1000; done"));
  const auto daemon = written_pid(w.dir / "daemon");
  written_pid(w.dir / "program");
  p->terminate(0.2);
  const auto end = end_of(*p);
  CHECK(end.what == kept_end::how::exited);
  CHECK(end.status == 128 + SIGKILL);
  CHECK(gone(daemon));
}

TEST_CASE("a kept program may end by itself after SIGTERM, before its grace period is over") {
  kept_world w;
  auto p = w.run(shell("trap 'exit 5' TERM; echo $$ > " + w.dir / "program" +
                       "; while :; do sleep 0.01; done"));
  written_pid(w.dir / "program");
  CHECK_FALSE(p->poll());
  p->terminate(1000);
  CHECK(end_of(*p).status == 5);
  auto plain = w.run(shell("echo $$ > " + w.dir / "other" + "; exec sleep 1000"));
  written_pid(w.dir / "other");
  plain->terminate(1000);
  CHECK(end_of(*plain).status == 128 + SIGTERM);
}

TEST_CASE(
    "a kept program ends when its lease expires, and keeps running when the lease is renewed") {
  kept_world w;
  const scratch other;
  auto p = w.run(with_daemon(w.dir, "sleep 1000"), 0.5);
  auto renewed = w.run(with_daemon(other, "sleep 1000"), 0.5);
  renewed->renew(seconds_from_now(no_limit_s));
  const auto end = end_of(*p);
  CHECK(end.what == kept_end::how::lease_expired);
  CHECK(gone(written_pid(w.dir / "daemon")));
  written_pid(other / "program");
  CHECK_FALSE(renewed->poll());
  renewed->kill();
  CHECK(end_of(*renewed).what == kept_end::how::exited);
}

TEST_CASE("a kept program and its daemons die with the process that started it") {
#ifdef __SANITIZE_THREAD__
  WARN("skipped: this sanitizer allows no threads after a fork");
  return;
#endif
  scratch dir;
  forked owner{[&] {
    kept_world w;
    auto p = w.run(with_daemon(dir, "wait; sleep 1000"));
    for (;;) ::pause();
  }};
  const auto daemon = written_pid(dir / "daemon"), program = written_pid(dir / "program");
  SECTION("killed") {
    owner.kill();
  }
  SECTION("ended by itself") {
    owner.signal(SIGTERM);
  }
  CHECK(eventually([&] { return gone(program) && gone(daemon); }));
}

TEST_CASE("a kept program ends with its lease when the process that started it is stopped") {
#ifdef __SANITIZE_THREAD__
  WARN("skipped: this sanitizer allows no threads after a fork");
  return;
#endif
  scratch dir;
  forked owner{[&] {
    kept_world w;
    auto p = w.run(with_daemon(dir, "sleep 1000"));
    for (;;) {
      p->renew(seconds_from_now(1.5));  // on a busy machine it may not run for a second
      ::usleep(20'000);
    }
  }};
  const auto daemon = written_pid(dir / "daemon"), program = written_pid(dir / "program");
  ::usleep(1'700'000);
  REQUIRE_FALSE(gone(program));  // it is being renewed
  owner.signal(SIGSTOP);
  CHECK(eventually([&] { return gone(program) && gone(daemon); }));
}

TEST_CASE("a lock that keepers inherit is held until the last of them has ended") {
  scratch dir;
  const auto file = dir / "lock";
  const int lock = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(::flock(lock, LOCK_EX | LOCK_NB) == 0);
  std::unique_ptr<kept_program> p;
  {
    kept_world w{lock};
    p = w.run(shell("sleep 1000"));
    CHECK_FALSE(p->poll());
    REQUIRE(eventually([&] { return w.on_record(); }));
  }
  ::close(lock);
  CHECK_FALSE(lock_is_free(file));
  p.reset();
  CHECK(eventually([&] { return lock_is_free(file); }));
}

TEST_CASE(
    "processes left when a keeper is killed together with its owner are reaped from the records") {
#ifdef __SANITIZE_THREAD__
  WARN("skipped: this sanitizer allows no threads after a fork");
  return;
#endif
  scratch dir;
  const auto records = dir / "groups";
  forked owner{[&] {
    auto server = keeper_server::start(records);
    auto p = (*server)->run(shell("sh -c 'echo $$ > " + dir / "child" +
                                  "; exec sleep 1000' & echo $$ > " + dir / "program" + "; wait"),
                            seconds_from_now(no_limit_s));
    for (;;) ::pause();
  }};
  const auto program = written_pid(dir / "program"), child = written_pid(dir / "child");
  const auto keeper = parent_of(program);
  owner.signal(SIGSTOP);
  ::kill(keeper, SIGKILL);
  owner.kill();
  REQUIRE(eventually([&] { return gone(program); }));  // killed by the kernel
  REQUIRE_FALSE(gone(child));
  CHECK(reap_orphans(records) == std::vector<pid_t>{program});
  CHECK(gone(child));
  CHECK(std::filesystem::is_empty(records));
  CHECK(reap_orphans(records).empty());
}

TEST_CASE("a program whose lease has expired before it starts is not started") {
  kept_world w;
  auto p = w.run(shell("touch " + w.dir / "started"), -0.1);
  CHECK(end_of(*p).what == kept_end::how::lease_expired);
  CHECK_FALSE(std::filesystem::exists(w.dir / "started"));
}

TEST_CASE("a keeper has real-time priority if its user may, and its program normal priority") {
  kept_world w;
  const auto file = w.dir / "pid";
  auto p = w.run(shell("echo $$ > " + file + "; exec sleep 1000"));
  REQUIRE(eventually([&] { return contents(file).ends_with('\n'); }));
  const pid_t program = std::stoi(contents(file));
  CHECK(::sched_getscheduler(program) == SCHED_OTHER);
  CHECK(::sched_getscheduler(parent_of(program)) ==
        (::geteuid() == 0 ? SCHED_RR | SCHED_RESET_ON_FORK : SCHED_OTHER));
  p->kill();
  end_of(*p);
}

TEST_CASE("a kept program has no capability, priority or right to one from its node") {
  constexpr int nobody = 65534, sys_nice = 23;
  // A node that an ordinary user runs with AmbientCapabilities=CAP_SYS_NICE, LimitRTPRIO
  // and LimitNICE.
  if (::geteuid() != 0) {
    WARN("skipped: only root can give a node capabilities");
    return;
  }
  scratch dir;
  std::filesystem::permissions(dir.path(), std::filesystem::perms::all);
  const auto says = dir / "says";
  {
    forked node{[&] {
      const rlimit allowed{50, 50}, nice{40, 40};
      ::setrlimit(RLIMIT_RTPRIO, &allowed);
      ::setrlimit(RLIMIT_NICE, &nice);
      ::setpriority(PRIO_PROCESS, 0, -5);
      ::prctl(PR_SET_KEEPCAPS, 1);
      if (::setgid(nobody) != 0 || ::setuid(nobody) != 0) ::_exit(2);
      __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
      __user_cap_data_struct sets[2]{};
      sets[0].permitted = sets[0].effective = sets[0].inheritable = 1u << sys_nice;
      if (::syscall(SYS_capset, &header, sets) != 0) ::_exit(3);
      if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, sys_nice, 0, 0) != 0) ::_exit(4);
      kept_world w;
      auto o = shell(
          "grep Cap /proc/self/status; grep ' priority' /proc/self/limits | tr -s ' '; "
          "cut -d' ' -f18,19,41 /proc/self/stat; echo end");
      o.output = says;
      auto p = w.run(o);
      end_of(*p);
      ::_exit(0);
    }};
    REQUIRE(eventually([&] { return contents(says).ends_with("end\n"); }));
  }
  const auto text = contents(says);
  INFO(text);
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"})
    CHECK(text.find(std::string{set} + ":\t0000000000000000\n") != std::string::npos);
  CHECK(text.find("Max realtime priority 0 0") != std::string::npos);
  CHECK(text.find("Max nice priority 0 0") != std::string::npos);
  CHECK(text.find("\n20 0 0\nend\n") != std::string::npos);  // priority, nice, policy
}

TEST_CASE("a keeper request is read as it was written, and a truncated one is refused") {
  keeper_request asked;
  asked.program.command = {"a", "", "c d"};
  asked.program.directory = "/x";
  asked.program.environment = {{"N", "v"}, {"E", ""}};
  asked.token = "token";
  asked.records = "records";
  asked.until_s = 12.5;
  const auto whole = asked.write();
  REQUIRE(int{whole} >= 0);
  keeper_request received;
  REQUIRE(keeper_request::read(whole, received));
  CHECK(received.program.command == asked.program.command);
  CHECK(received.program.directory == "/x");
  CHECK(received.program.environment == asked.program.environment);
  CHECK(received.token == "token");
  CHECK(received.records == "records");
  CHECK(received.until_s == 12.5);
  const auto size = ::lseek(whole, 0, SEEK_END);
  const auto one_variable = 2 * 8 + 2;  // the first: with it, or without any, it is whole
  for (auto less = size - 1; less >= 0; --less) {
    REQUIRE(::ftruncate(whole, less) == 0);
    keeper_request cut;
    const bool complete = less == size - 17 || less == size - 17 - one_variable;
    CAPTURE(less, size);
    CHECK(keeper_request::read(whole, cut) == complete);
  }
}

TEST_CASE("a program whose process group cannot be recorded is not run") {
  scratch dir;
  std::ofstream{dir / "groups"} << "a file";
  auto server = keeper_server::start(dir / "groups", -1);
  REQUIRE(server);
  auto p = (*server)->run(shell("touch " + dir / "ran"), no_limit_s);
  REQUIRE(p);
  CHECK(end_of(**p).what == kept_end::how::no_room);
  CHECK_FALSE(std::filesystem::exists(dir / "ran"));
}

TEST_CASE("a kept program is killed when its handle is destroyed") {
  kept_world w;
  auto p = w.run(shell("echo $$ > " + w.dir / "program" + "; exec sleep 1000"));
  const auto program = written_pid(w.dir / "program");
  p.reset();
  CHECK(gone(program));
}

TEST_CASE("a keeper sleeps while its program runs, and wakes when the lease expires") {
  kept_world w;
  double quickest_s = long_s;
  for (int i = 0; i < 5 && quickest_s > 0.5; ++i) {
    const auto begun_s = seconds_from_now(0);
    auto p = w.run(shell("sleep 1000"), 0.1);
    CHECK(end_of(*p).what == kept_end::how::lease_expired);
    quickest_s = std::min(quickest_s, seconds_from_now(0) - begun_s);
  }
  CHECK(quickest_s < 0.5);
  auto p = w.run(shell("echo $$ > " + w.dir / "program" + "; exec sleep 1000"));
  const auto keeper = parent_of(written_pid(w.dir / "program"));
  const auto times_asleep = [&] {
    const auto status = contents("/proc/" + std::to_string(keeper) + "/status");
    const std::string name = "\nvoluntary_ctxt_switches:";
    return std::stol(status.substr(status.find(name) + name.size()));
  };
  const auto before = times_asleep();
  ::usleep(200'000);
  CHECK(times_asleep() - before < 20);
}
