// Tests over copies of some sources with faults in them, which are the rows of a planted.txt
// (PLANTED_TABLE). Each is switched on in a process of its own, which runs the test that must find
// it.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "harness/source_dir.hpp"
#include "simulation/planted.hpp"

namespace {

int fault_switched_on() {
  const auto* bug = std::getenv("TROUPE_PLANTED");
  return bug ? std::atoi(bug) : 0;
}

}  // namespace

namespace troupe {
int planted_bug = fault_switched_on();
}

namespace {

struct planted_fault {
  int bug = 0;
  std::string test;
};

std::vector<planted_fault> planted_faults() {
  std::ifstream in{troupe::test::source_dir() + "/" PLANTED_TABLE};
  std::vector<planted_fault> all;
  const std::string bug = "bug ", test = "test: ";
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(bug)) all.push_back({std::atoi(line.c_str() + bug.size()), ""});
    if (line.starts_with(test) && !all.empty()) all.back().test = line.substr(test.size());
  }
  return all;
}

constexpr int not_run = 255;

/// The exit status of the test with this fault: 0 if it passes, 128 and more if the process was
/// killed, as by an exception that nobody catches.
int status_with(const planted_fault& f) {
  const auto child = ::fork();
  if (child == 0) {
    ::setenv("TROUPE_PLANTED", std::to_string(f.bug).c_str(), 1);
    if (!std::freopen("/dev/null", "w", stdout) || !std::freopen("/dev/null", "w", stderr))
      std::_Exit(not_run);
    ::alarm(120);
    std::string name;  // a comma separates names for Catch
    for (const char c : f.test) name += c == ',' ? std::string{"\\,"} : std::string{c};
    ::execl("/proc/self/exe", "planted", name.c_str(), "--warn", "NoTests", nullptr);
    std::_Exit(not_run);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("each planted fault is found by its test, which passes without it") {
  REQUIRE_FALSE(planted_faults().empty());
  for (const auto& f : planted_faults()) {
    CAPTURE(f.bug, f.test);
    CHECK(status_with({0, f.test}) == 0);
    const int with = status_with(f);
    CHECK(with != 0);
    CHECK(with != not_run);
  }
}
