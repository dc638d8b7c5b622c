#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "harness/scratch.hpp"
#include "harness/small_cluster.hpp"
#include "processes/fixture.hpp"

// Clusters whose nodes have no PyTorch, in real processes.

using namespace troupe;
using namespace troupe::test;

namespace {

/// Processes that start meanwhile have a Python without packages.
struct bare_python {
  scratch room;
  bare_python() {
    const auto file = room / "python";
    std::ofstream{file} << "#!/bin/sh\nexec python3 -I -S \"$@\"\n";
    ::chmod(file.c_str(), 0755);
    ::setenv("TROUPE_PYTHON", file.c_str(), 1);
  }
  ~bare_python() { ::unsetenv("TROUPE_PYTHON"); }
  std::string interpreter() const { return room / "python"; }
};

}  // namespace

TEST_CASE("a training waits while no node has PyTorch, with interpreter and node in its reason") {
  const bare_python python;
  fixture f{"without-torch"};
  REQUIRE(f.wait_for_nodes());
  const auto id = f.submit(harness::layers_job(python.room / "its.py"));
  std::string summary;
  const bool known = f.wait_until([&](const query_reply&) {
    const auto reply = f.client->ask(explain_job{0, id}, long_s).reply;
    REQUIRE(reply);
    summary = std::get<explanation>(reply->first).summary;
    return summary.find("no node has PyTorch") != std::string::npos;
  });
  INFO(summary);
  CHECK(known);
  CHECK_THAT(summary, Catch::Contains(python.interpreter() + " on " + f.jobs().nodes.at(0).name));
  CHECK(f.job(id).state == job_state::waiting);
  CHECK(f.job(id).progress.attempts == 0);
  const auto other = f.submit("other", "true");
  CHECK(f.is(other, job_state::finished));
}
