#include "actors/node/local_process_runner.hpp"

#include "actors/protocol/launch_environment.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include <fmt/format.h>

#include "harness/facts.hpp"
#include "harness/scratch.hpp"
#include "runtime/host/pause.hpp"
#include "runtime/host/real_clock.hpp"
#include "runtime/host/stopwatch.hpp"
#include "runtime/host/wait.hpp"

using namespace troupe;
using namespace troupe::actors;
using state = part_report::state;
using troupe::test::has_facts;

namespace {

constexpr double long_s = 20;

/// A node's state directory, and the programs of one start of the node.
struct programs {
  troupe::test::scratch room;
  std::shared_ptr<process_runner> runner = make(1);
  std::map<lease_id, part_report> ends;
  double grace_s = 5;  // of the programs that are started from now on

  std::shared_ptr<process_runner> make(std::uint64_t incarnation) const {
    auto made = make_process_launcher(room.path(), incarnation);
    REQUIRE(made);
    return *made;
  }
  void start(lease_id lease, const std::string& script) const {
    work_order w;
    w.lease = lease;
    w.command = {"sh", "-c", script};
    w.iterations = 500;
    w.program = {grace_s, 500, 1000};
    w.environment = {"COLOUR=green=blue", "NO_EQUALS"};
    w.working_directory = room.path();
    REQUIRE(runner->start(w));
  }
  /// The report of a lease that has ended, which poll() returns only once.
  part_report end_of(lease_id lease) {
    REQUIRE(runtime::wait_until(
        [&] {
          for (const auto& p : runner->poll())
            if (p.now != state::running) ends[p.lease] = p;
          return ends.contains(lease);
        },
        long_s));
    return ends[lease];
  }
  std::string log(lease_id lease, std::uint64_t offset = 0) const {
    const auto piece = runner->read_log(lease, offset);
    if (!piece) return "none: " + piece.error().text;
    const auto bytes = piece->bytes.bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  void wait_for_log(lease_id lease, const std::string& text) const {
    REQUIRE(
        runtime::wait_until([&] { return log(lease).find(text) != std::string::npos; }, long_s));
  }
};

}  // namespace

TEST_CASE("a program gets its environment, directory and log, and its report is read") {
  programs p;
  p.start(7,
          "echo $COLOUR in $(pwd), $TROUPE_GRACE_S s; echo 'iterations: 12' >> \"$TROUPE_REPORT\"; "
          "exit 0");
  const auto end = p.end_of(7);
  CHECK(end.now == state::succeeded);
  CHECK(end.exit_code == 0);
  CHECK(end.iterations == 12);
  CHECK(end.detail.empty());
  CHECK(p.log(7) == "green=blue in " + p.room.path() + ", 5 s\n");
  CHECK(p.log(7, 6) == p.log(7).substr(6));
  CHECK(p.log(8) == "none: no log of lease 8 on this node");
  CHECK(p.runner->poll().empty());
}

TEST_CASE(
    "a program's end is reported with exit status, signal, out-of-memory or missing executable") {
  programs p;
  auto after = [&, lease = lease_id{0}](const std::string& script) mutable {
    p.start(++lease, script);
    return p.end_of(lease);
  };
  auto end = after("exit 3");
  CHECK(end.now == state::failed);
  CHECK(end.exit_code == 3);
  CHECK(end.detail == "exit status 3");
  CHECK(after("exit 128").detail == "exit status 128");
  CHECK(after("kill -SEGV $$").detail == "exit status 139 (SIGSEGV)");
  CHECK(after("exit 129").detail == "exit status 129 (SIGHUP)");
  end = after("echo 'torch.OutOfMemoryError: CUDA out of memory'; exit 1");
  CHECK(end.now == state::out_of_memory);
  CHECK(end.detail == "exit status 1: torch.OutOfMemoryError: CUDA out of memory");
  end = after(fmt::format("exit {}", out_of_memory_exit));
  CHECK(end.now == state::out_of_memory);
  CHECK(end.detail ==
        fmt::format("exit status {0}: it says that it ran out of memory", out_of_memory_exit));
  CHECK(after("echo 'CUDA out of memory, tried again'; exit 0").now == state::succeeded);

  work_order missing;
  missing.lease = 100;
  missing.command = {"no-such-program"};
  REQUIRE(p.runner->start(missing));
  end = p.end_of(100);
  CHECK(end.now == state::failed);
  CHECK(end.exit_code == 127);
  CHECK(has_facts(end.detail, {"no-such-program", "No such file"}));
  CHECK(p.log(100) == "troupe: " + end.detail + "\n");
  work_order empty;
  empty.lease = 101;
  CHECK_FALSE(p.runner->start(empty));
  CHECK(p.log(101).starts_with("troupe: "));
}

TEST_CASE("a node that cannot write its logs starts nothing, and tries again with growing pauses") {
  programs p;
  const auto logs = std::filesystem::path{p.room.path()} / "logs";
  p.start(1, "exit 0");
  p.end_of(1);
  CHECK(p.runner->unable().empty());
  std::filesystem::remove_all(logs);
  std::ofstream{logs} << "a file\n";
  work_order w;
  w.lease = 2;
  w.command = {"true"};
  const auto refused = p.runner->start(w);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == reason::kind::unavailable);
  CHECK(p.runner->unable() == refused.error().text);
  CHECK(has_facts(p.runner->unable(), {"logs", "Not a directory"}));
  const auto works = [&](double limit_s) {
    return runtime::wait_until(
        [&] {
          p.runner->poll();
          return p.runner->unable().empty();
        },
        limit_s);
  };
  CHECK_FALSE(works(1.2));  // one try has failed meanwhile
  std::filesystem::remove(logs);
  const runtime::stopwatch waited;
  CHECK(works(long_s));
  CHECK(waited.s() > 0.5);
  CHECK(std::filesystem::is_empty(logs));
  p.start(3, "exit 0");
  CHECK(p.end_of(3).now == state::succeeded);
}

TEST_CASE("a program whose output cannot be opened was not started, for its node's reasons") {
  programs p;
  const auto lease = std::filesystem::path{p.room.path()} / "logs" / fmt::format("1-{:016x}", 1);
  std::filesystem::create_directories(lease / "output.log");
  p.start(1, "exit 0");
  const auto end = p.end_of(1);
  CHECK(end.now == state::not_started);
  CHECK(has_facts(end.detail, {"output.log", "Is a directory"}));
  CHECK(p.runner->unable() == end.detail);
}

TEST_CASE("stopping a program sends SIGTERM once, or SIGKILL if it must end at once") {
  programs p;
  p.start(1, "trap 'echo asked; exit 9' TERM; echo ready; while :; do :; done");
  p.start(2, "trap 'echo asked' TERM; echo ready; while :; do :; done");
  for (const lease_id l : {1, 2}) p.wait_for_log(l, "ready");
  CHECK(p.runner->poll().size() == 2);
  for (int i = 0; i < 3; ++i) p.runner->stop(1, false);
  auto end = p.end_of(1);
  CHECK(end.now == state::stopped);
  CHECK(end.exit_code == 9);
  CHECK(p.log(1) == "ready\nasked\n");
  p.runner->stop(2, true);
  end = p.end_of(2);
  CHECK(end.now == state::stopped);
  CHECK(end.exit_code == 128 + SIGKILL);
  CHECK(p.log(2) == "ready\n");
  p.runner->stop(77, true);  // unknown
}

TEST_CASE("a program that ends after SIGTERM has stopped, unless it says that the job is done") {
  struct row {
    const char* on_signal;
    state now;
    int status;
  };
  const auto report = [](const char* line) {
    return fmt::format("echo \"{}\" >> $TROUPE_REPORT; exit 0", line);
  };
  const auto done = report("finished: 1"), last = report("iteration: 1000"),
             all_of_this_attempt = report("iterations: 500"), nearly = report("iteration: 999"),
             takes_it_back = report("finished: 1\nfinished: 0");
  programs p;
  lease_id lease = 0;
  for (const auto& r :
       {row{"exit 0", state::stopped, 0}, row{"exit 1", state::stopped, 1},
        row{"exit 143", state::stopped, 143}, row{"kill -KILL $$", state::stopped, 137},
        row{"echo CUDA out of memory; exit 1", state::stopped, 1},
        row{done.c_str(), state::succeeded, 0}, row{last.c_str(), state::succeeded, 0},
        row{all_of_this_attempt.c_str(), state::succeeded, 0},
        row{nearly.c_str(), state::stopped, 0}, row{takes_it_back.c_str(), state::stopped, 0},
        row{"echo finished: 1 >> $TROUPE_REPORT; exit 1", state::stopped, 1}}) {
    CAPTURE(r.on_signal);
    p.start(++lease,
            fmt::format("trap '{}' TERM; echo ready; while :; do sleep 0.01; done", r.on_signal));
    p.wait_for_log(lease, "ready");
    p.runner->stop(lease, false);
    const auto end = p.end_of(lease);
    CHECK(end.now == r.now);
    CHECK(end.exit_code == r.status);
    REQUIRE(end.program);
    CHECK(end.program->signalled);
  }
}

TEST_CASE("a program that had ended before it was stopped has its own end") {
  programs p;
  for (const auto& [lease, status] : {std::pair<lease_id, int>{1, 0}, {2, 3}}) {
    p.start(lease, fmt::format("echo ready; exit {}", status));
    p.wait_for_log(lease, "ready");
    runtime::pause(0.3);
    p.runner->stop(lease, false);
    const auto end = p.end_of(lease);
    CHECK(end.now == (status == 0 ? state::succeeded : state::failed));
    CHECK_FALSE(end.program->signalled);
  }
}

TEST_CASE("a program gets the grace period of its order, and what it reports is passed on") {
  programs p;
  p.grace_s = 0.4;
  p.start(1,
          "trap \"\" TERM; printf 'resumed: 500\\niteration: 510\\nsaved: 505\\nstep_s: 2\\n' > "
          "$TROUPE_REPORT; echo $TROUPE_GRACE_S ready; while :; do sleep 0.01; done");
  p.wait_for_log(1, "0.4 ready");
  const runtime::stopwatch waited;
  p.runner->stop(1, false);
  const auto end = p.end_of(1);
  CHECK(waited.s() >= 0.4);
  CHECK(waited.s() < 4);
  CHECK(end.now == state::stopped);
  CHECK(end.exit_code == 137);
  CHECK(end.program == program_progress{510, 505, 500, 2, false, true});
}

TEST_CASE("programs end with the lease of their node, those started later too") {
  programs p;
  const auto now_s = [] { return runtime::real_clock{}.now_s(); };
  p.start(1, "sleep 1000");
  p.runner->renew(now_s() + 0.3);
  p.start(2, "sleep 1000");
  for (const lease_id l : {1, 2}) {
    const auto end = p.end_of(l);
    CHECK(end.now == state::stopped);
    CHECK(end.detail == lease_expired);
  }
}

TEST_CASE("the watcher is called when a program ends, also for a program that ran before") {
  programs p;
  std::atomic<int> notified{0};
  p.start(1, "until [ -e go ]; do sleep 0.01; done");
  p.runner->watch([&] { ++notified; });
  p.start(2, "until [ -e go2 ]; do sleep 0.01; done");
  REQUIRE(runtime::wait_until([&] { return p.runner->poll().size() == 2; }, long_s));
  for (const auto* go : {"go", "go2"}) {
    runtime::pause(0.05);
    const int before = notified;
    std::ofstream{p.room / go};
    CHECK(runtime::wait_until([&] { return notified > before; }, long_s));
  }
  for (const lease_id l : {1, 2}) p.end_of(l);
}

TEST_CASE("the report of a running program is read about once a second") {
  programs p;
  p.start(1, "echo 'iterations: 1' >> \"$TROUPE_REPORT\"; echo ready; sleep 1000");
  p.wait_for_log(1, "ready");
  REQUIRE(runtime::wait_until(
      [&] {
        const auto all = p.runner->poll();
        return all.size() == 1 && all[0].now == state::running && all[0].iterations == 1;
      },
      long_s));
  p.runner->append_log(1, "a line of ours");
  CHECK(p.log(1) == "ready\na line of ours\n");
}

TEST_CASE("an unusable state directory is refused") {
  const troupe::test::scratch room;
  std::ofstream{room / "file"};
  CHECK_FALSE(make_process_launcher(room / "file", 1));
  std::ofstream{room / "processes"};
  CHECK_FALSE(make_process_launcher(room.path(), 1));
}

TEST_CASE("a program that reads the control file saves and ends without a signal") {
  programs p;
  p.grace_s = 20;
  p.start(1,
          "trap 'echo signalled' TERM; echo 'control: 1' > $TROUPE_REPORT; echo begun; "
          "while [ ! -e $TROUPE_CONTROL ]; do sleep 0.05; done; cat $TROUPE_CONTROL; "
          "echo 'saved: 700' >> $TROUPE_REPORT; exit 0");
  p.wait_for_log(1, "begun");
  p.runner->stop(1, false);
  const auto end = p.end_of(1);
  CHECK(end.now == state::stopped);
  CHECK(end.exit_code == 0);
  REQUIRE(end.program);
  CHECK(end.program->signalled);
  CHECK(end.program->saved == 700u);
  CHECK(p.log(1) == "begun\nstop: 1\nwithin_s: 20\n");
}

TEST_CASE("a program that ignores its control file gets SIGTERM late in its grace, then SIGKILL") {
  programs p;
  p.grace_s = 2;  // SIGTERM after 1 s
  p.start(1,
          "trap 'echo signalled' TERM; echo 'control: 1' > $TROUPE_REPORT; echo begun; "
          "while true; do sleep 0.05; done");
  p.wait_for_log(1, "begun");
  const runtime::stopwatch watch;
  p.runner->stop(1, false);
  p.wait_for_log(1, "signalled");
  CHECK(watch.s() >= 0.9);
  const auto end = p.end_of(1);
  CHECK(watch.s() >= 1.9);
  CHECK(end.now == state::stopped);
  CHECK(end.exit_code == 128 + SIGKILL);
}

TEST_CASE("a program whose control file cannot be written gets SIGTERM at once") {
  programs p;
  p.grace_s = 20;
  p.start(1,
          "trap 'echo signalled; exit 0' TERM; mkdir $TROUPE_CONTROL; "
          "echo 'control: 1' > $TROUPE_REPORT; echo begun; while true; do sleep 0.05; done");
  p.wait_for_log(1, "begun");
  const runtime::stopwatch watch;
  p.runner->stop(1, false);
  CHECK(p.end_of(1).now == state::stopped);
  CHECK(watch.s() < 8);
  CHECK(p.log(1).find("signalled") != std::string::npos);
}
