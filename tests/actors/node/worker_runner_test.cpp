#include "actors/node/worker_runner.hpp"

#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include <catch2/catch.hpp>

#include "actors/node/local_process_runner.hpp"
#include "harness/scratch.hpp"
#include "harness/shell.hpp"
#include "messages/base/untrusted_file.hpp"
#include "runtime/host/real_clock.hpp"
#include "runtime/host/stopwatch.hpp"
#include "runtime/host/wait.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

constexpr double limit_s = 20;

/// A node's runner whose workers are scripts.
struct workers {
  troupe::test::scratch room;
  std::shared_ptr<process_runner> runner = *make_process_launcher(room.path(), 1);

  std::unique_ptr<gpu::worker_process> start(lease_id lease, const std::string& script) const {
    return *runner->workers(lease)(
        {{"sh", "-c", "echo $$ > pid; " + script}, {{"COLOUR", "green"}}, room.path()});
  }
  /// The script's process, once it runs.
  int pid() const {
    std::string text;
    REQUIRE(wait([&] { return !(text = troupe::test::read_file(room / "pid")).empty(); }));
    return std::stoi(text);
  }
  bool wait(const std::function<bool()>& what) const {
    return runtime::wait_until([&] { return runner->poll().empty() && what(); }, limit_s);
  }
  /// Its end's sentence.
  std::string end_of(gpu::worker_process& w) const {
    REQUIRE(wait([&] { return w.ended().has_value(); }));
    return *w.ended();
  }
  std::string log(lease_id lease) const {
    const auto piece = runner->read_log(lease, 0);
    if (!piece) return {};
    const auto bytes = piece->bytes.bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

bool is_alive(int pid) {
  return ::kill(pid, 0) == 0;
}

}  // namespace

TEST_CASE("a stage's worker gets its environment and directory, and the lease's log") {
  const workers all;
  const auto w = all.start(7, "echo $COLOUR in $(pwd)");
  CHECK_FALSE(w->ended());
  CHECK(all.end_of(*w) == "ended with status 0");
  CHECK(all.log(7) == "green in " + all.room.path() + "\n");
}

TEST_CASE("a worker is started from any thread, and its end says how") {
  const workers all;
  std::unique_ptr<gpu::worker_process> w;
  std::thread{[&] { w = all.start(1, "kill -SEGV $$"); }}.join();
  CHECK(all.end_of(*w) == "was killed by signal 11 (SIGSEGV)");
  const auto missing = *all.runner->workers(1)({{"/no/python"}, {}, {}});
  CHECK(all.end_of(*missing).starts_with("could not start: "));
}

TEST_CASE("a worker that is killed leaves no descendant") {
  const workers all;
  const auto w = all.start(1, "sleep 1000 & echo $! > child; wait");
  const int pid = all.pid();
  REQUIRE(all.wait([&] { return !troupe::test::read_file(all.room / "child").empty(); }));
  const int child = std::stoi(troupe::test::read_file(all.room / "child"));
  w->kill();
  CHECK(all.end_of(*w) == "was killed by signal 9 (SIGKILL)");
  CHECK(all.wait([&] { return !is_alive(pid) && !is_alive(child); }));
}

TEST_CASE("a worker whose stage is gone may end by itself, and is killed after two seconds") {
  const workers all;
  auto w = all.start(1, "trap '' TERM; while :; do sleep 0.1; done");
  const int pid = all.pid();
  const runtime::stopwatch since;
  w = nullptr;
  CHECK(since.s() < 1);
  CHECK(all.wait([&] { return !is_alive(pid); }));
  CHECK(since.s() > 1.5);
}

TEST_CASE("no worker starts while another one of the node is ending, which may still hold memory") {
  const workers all;
  auto old = all.start(1, "trap '' TERM; while :; do sleep 0.1; done");
  const int pid = all.pid();
  old = nullptr;
  const auto next = all.start(2, "kill -0 " + std::to_string(pid) + " && exit 3");
  CHECK(all.end_of(*next) == "ended with status 1");
}

TEST_CASE("the end of a lease kills its workers, and no others") {
  const workers all;
  const auto ended = all.start(1, "sleep 1000");
  const int pid = all.pid();
  const auto other = all.start(2, "sleep 1000");
  const auto late = all.start(1, "sleep 1000");
  all.runner->end_workers(1);
  CHECK(all.end_of(*ended) == "was killed by signal 9 (SIGKILL)");
  CHECK(all.end_of(*late) == "was not started");
  CHECK_FALSE(is_alive(pid));
  CHECK_FALSE(other->ended());
}

TEST_CASE("workers do not outlive the node's lease") {
  const workers all;
  const auto w = all.start(1, "sleep 1000");
  const int pid = all.pid();
  all.runner->renew(runtime::real_clock{}.now_s() - 1);
  CHECK(all.end_of(*w) == "was killed, as its lease was not renewed");
  CHECK_FALSE(is_alive(pid));
}

TEST_CASE("a stage that outlives its node's runner starts nothing") {
  workers all;
  const auto starter = all.runner->workers(1);
  all.runner = nullptr;
  CHECK_FALSE(starter({{"true"}, {}, {}}));
}

TEST_CASE("what the workers of a lease print has the limit of a program's log") {
  const workers all;
  // Bytes that nobody has to write.
  const auto w = all.start(3, "fallocate -l 320M /proc/self/fd/1 && touch filled; exec sleep 1000");
  all.pid();
  const auto log = [&] {
    for (const auto& entry : std::filesystem::recursive_directory_iterator{all.room.path()})
      if (entry.path().filename() == "output.log") return entry.path().string();
    return std::string{};
  };
  const auto on_disk = [&] {
    struct stat s {};
    return ::stat(log().c_str(), &s) == 0 ? 512ull * static_cast<std::uint64_t>(s.st_blocks) : 0;
  };
  constexpr std::uint64_t limit_bytes = 256ull << 20;
  const bool filled =
      all.wait([&] { return w->ended() || std::filesystem::exists(all.room / "filled"); });
  REQUIRE(filled);
  const bool cut = troupe::limit_disk_use(log(), 16ull << 30) && on_disk() > 0;
  if (!cut) return;  // this file system takes no bytes that are not written
  CHECK(all.wait([&] { return on_disk() <= limit_bytes; }));
  CHECK(std::filesystem::file_size(log()) >= limit_bytes);
}
