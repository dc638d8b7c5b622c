#include "runtime/process/process.hpp"
#include "harness/facts.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/process/process_group.hpp"
#include "runtime/processes.hpp"

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::test;

namespace {

std::unique_ptr<process> must_start(const process_options& o) {
  auto p = process::start(o);
  INFO((p ? std::string{} : p.error().text));
  REQUIRE(p);
  return std::move(*p);
}

int exit_of(process& p) {
  std::optional<int> status;
  REQUIRE(eventually([&] { return (status = p.poll()).has_value(); }));
  return *status;
}

}  // namespace

TEST_CASE(
    "a program runs in its directory with its environment, and its output goes to its log file") {
  scratch dir;
  auto o = shell("echo \"$SHADE $COLOUR in $(pwd)\"; echo to-error >&2; exit 7");
  ::setenv("COLOUR", "red", 1);
  ::setenv("SHADE", "dark", 1);
  o.environment = {{"COLOUR", "green"}};
  o.directory = dir.path();
  o.output = dir / "log";
  REQUIRE(exit_of(*must_start(o)) == 7);
  REQUIRE(contents(o.output) == "dark green in " + dir.path() + "\nto-error\n");
}

TEST_CASE("the program's own PATH decides which file is run") {
  scratch dir;
  namespace fs = std::filesystem;
  for (const char* folder : {"a", "b", "with space"}) {
    fs::create_directory(dir / folder);
    const auto tool = dir / folder + "/mytool";
    std::ofstream{tool} << "#!/bin/sh\necho from " << folder << "\n";
    fs::permissions(tool, fs::perms::owner_all);
  }
  std::ofstream{dir / "b" + "/other"} << "not executable";
  const auto run = [&](const std::string& path, const std::string& word = "mytool") {
    const auto output = dir / "log";
    fs::remove(output);
    const auto p = process::start({.command = {word},
                                   .environment = {{"PATH", path}},
                                   .directory = dir.path(),
                                   .output = output});
    if (!p) return p.error().text;
    exit_of(**p);
    return contents(output);
  };
  CHECK(run(dir / "a" + ":" + dir / "b") == "from a\n");
  CHECK(run(dir / "b" + ":" + dir / "a") == "from b\n");
  CHECK(run("/no/such/folder:" + dir / "with space") == "from with space\n");
  CHECK(run("b:/usr/bin") == "from b\n");  // relative to the working directory
  CHECK(run("/usr/bin:/bin") == "cannot run mytool: No such file or directory");
  CHECK(run("/usr/bin:/bin", "a/mytool") == "from a\n");  // a slash: not searched
  CHECK(run(dir / "b" + ":/usr/bin", "other") ==
        "cannot run other: Permission denied: it is not executable (chmod +x)");
  const std::string here = ":/usr/bin";  // an empty folder is the working directory
  fs::copy(dir / "a" + "/mytool", dir / "mytool");
  CHECK(run(here) == "from a\n");
}

TEST_CASE("the exit status of a program that a signal kills is 128 plus the signal's number") {
  REQUIRE(exit_of(*must_start(shell("kill -SEGV $$"))) == 128 + SIGSEGV);
  auto p = must_start({.command = {"sleep", "1000"}});
  REQUIRE_FALSE(p->poll());
  p->terminate();
  REQUIRE(exit_of(*p) == 128 + SIGTERM);
  REQUIRE(exit_of(*p) == 128 + SIGTERM);
}

TEST_CASE("a program that ignores SIGTERM is killed by SIGKILL") {
  scratch dir;
  auto o = shell("trap '' TERM; echo $$ > " + dir / "pid" + "; while :; do sleep 1000; done");
  auto p = must_start(o);
  written_pid(dir / "pid");
  p->terminate();
  REQUIRE_FALSE(p->poll());
  p->kill();
  REQUIRE(exit_of(*p) == 128 + SIGKILL);
}

TEST_CASE("a program that cannot be started is refused with the reason") {
  const auto text = [](const process_options& o) {
    const auto p = process::start(o);
    REQUIRE_FALSE(p);
    // `invalid` is an error of the job; others are errors of this machine.
    CHECK((p.error().code == reason::kind::invalid) == (o.directory.empty() && o.output.empty()));
    return p.error().text;
  };
  REQUIRE(troupe::test::has_facts(text({.command = {}}), {"command"}));
  REQUIRE(troupe::test::has_facts(text({.command = {"no-such-program"}}),
                                  {"no-such-program", "No such file or directory"}));
  REQUIRE(troupe::test::has_facts(text({.command = {"true"}, .directory = "/no/such"}),
                                  {"/no/such", "No such file or directory"}));
  REQUIRE(troupe::test::has_facts(text({.command = {"true"}, .output = "/no/such/log"}),
                                  {"/no/such/log", "No such file or directory"}));
}

TEST_CASE("a grandchild that outlives its parent is killed, inside its process group or not") {
  scratch dir;
  const std::string with = GENERATE("", "setsid ");
  auto p = must_start(shell(with + "sh -c 'echo $$ > " + dir / "pid" +
                            "; exec sleep 1000' & until [ -s " + dir / "pid" +
                            " ]; do sleep 0.01; done; exit 3"));
  const auto grandchild = written_pid(dir / "pid");
  REQUIRE(exit_of(*p) == 3);
  REQUIRE(gone(grandchild));
}

TEST_CASE("a process that reuses the pid of a recorded group is not killed") {
  scratch dir;
  auto innocent = must_start({.command = {"sleep", "1000"}});
  auto g = describe_group(innocent->id(), fresh_group_token());
  REQUIRE(g);
  SECTION("it started at another time") {
    g->started -= 1;
  }
  SECTION("the machine has been started again since") {
    g->boot = "another";
  }
  REQUIRE(record_group(dir.path(), *g));
  REQUIRE(reap_orphans(dir.path()).empty());
  REQUIRE_FALSE(innocent->poll());
  REQUIRE(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("invalid group records are removed, and other files are kept") {
  scratch dir;
  std::ofstream{dir / "1.group"} << "1 0 boot token";
  std::ofstream{dir / "x.group"} << "what is this";
  std::ofstream{dir / "note.txt"} << "not a record";
  REQUIRE(reap_orphans(dir.path()).empty());
  REQUIRE(std::filesystem::exists(dir / "note.txt"));
  REQUIRE_FALSE(std::filesystem::exists(dir / "1.group"));
  REQUIRE(reap_orphans(dir / "no-such-directory").empty());
}

TEST_CASE("the members of a process group are found by its leader, whatever their environment") {
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::setpgid(0, 0);
    char* const words[] = {const_cast<char*>("sleep"), const_cast<char*>("1000"), nullptr};
    char* const nothing[] = {nullptr};
    ::execve("/bin/sleep", words, nothing);
    ::_exit(1);
  }
  ::setpgid(child, child);
  const auto group = describe_group(child, "a token that nobody has");
  REQUIRE(group);
  auto later = *group;
  ++later.started;
  CHECK(kill_members(later) == 0);
  CHECK_FALSE(gone(child));
  CHECK(kill_members(*group) == 1);
  REQUIRE(eventually([&] { return gone(child); }));
  CHECK_FALSE(describe_group(child, ""));  // a zombie
  CHECK(kill_members(*group) == 0);
  ::waitpid(child, nullptr, 0);
  CHECK_FALSE(describe_group(child, ""));
}

TEST_CASE("a process is described though an earlier system call was interrupted") {
  errno = EINTR;
  CHECK(describe_group(::getpid(), {}));
}

TEST_CASE("processes that exit while the members of another group are looked for do no harm") {
  const process_group without_members{0, 0, this_boot(), fresh_group_token()};
  std::atomic<bool> over = false;
  std::thread starting{[&] {
    while (!over) {
      const auto child = ::fork();
      if (child == 0) ::_exit(0);
      ::waitpid(child, nullptr, 0);
    }
  }};
  std::size_t killed = 0;
  for (int i = 0; i < 200; ++i) killed += kill_members(without_members);
  over = true;
  starting.join();
  CHECK(killed == 0);
}

TEST_CASE("a process that exits while /proc is read counts as gone") {
  std::atomic<pid_t> last = 0;
  std::atomic<bool> over = false;
  std::thread looking{[&] {
    while (!over)
      if (const auto pid = last.load(); pid > 0) describe_group(pid, {});
  }};
  for (int i = 0; i < 3000; ++i) {
    const auto child = ::fork();
    if (child == 0) ::_exit(0);
    last = child;
    ::waitpid(child, nullptr, 0);
    if (i % 100 == 0) CHECK_FALSE(describe_group(child, {}));
  }
  over = true;
  looking.join();
}
