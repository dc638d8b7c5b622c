// The tests of plugin.cu over a copy with bugs in it: see planted.txt. Each bug is switched on in a
// process of its own, which runs the test that must find it; without one, all tests pass.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "harness/source_dir.hpp"
#include "simulation/planted.hpp"

namespace {

int switched_on() {
  const auto* bug = std::getenv("TROUPE_PLANTED");
  return bug ? std::atoi(bug) : 0;
}

}  // namespace

namespace troupe {
int planted_bug = switched_on();
}

namespace {

#ifdef TROUPE_NCCL
constexpr bool nccl = true;
#else
constexpr bool nccl = false;
#endif
constexpr int first_of_nccl = 50, last_of_nccl = 59;

struct planted_row {
  int bug;
  std::string test;
};

std::vector<planted_row> rows() {
  std::ifstream in{troupe::test::source_dir() + "/tests/gpu/plugin/planted.txt"};
  std::vector<planted_row> all;
  const std::string bug = "bug ", test = "test: ";
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(bug)) all.push_back({std::atoi(line.c_str() + bug.size()), ""});
    if (line.starts_with(test) && !all.empty()) all.back().test = line.substr(test.size());
  }
  return all;
}

constexpr int did_not_run = 255;

/// The number of failed checks; -1: the process did not end by itself.
int run(const planted_row& r) {
  const auto child = ::fork();
  if (child == 0) {
    ::setenv("TROUPE_PLANTED", std::to_string(r.bug).c_str(), 1);
    if (!std::freopen("/dev/null", "w", stdout)) std::_Exit(did_not_run);
    ::alarm(120);
    // A comma separates names for Catch.
    std::string name;
    for (const char c : r.test) name += c == ',' ? std::string{"\\,"} : std::string{c};
    ::execl("/proc/self/exe", "planted", name.c_str(), nullptr);
    std::_Exit(did_not_run);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("each planted bug of the plug-in is found by its test") {
  REQUIRE(rows().size() > 30);
  for (const auto& r : rows()) {
    CAPTURE(r.bug, r.test);
    if (!nccl && r.bug >= first_of_nccl && r.bug <= last_of_nccl) continue;
    const int failed = run(r);
    CHECK(failed > 0);
    CHECK(failed < did_not_run);
  }
}
