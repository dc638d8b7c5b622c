#include <catch2/catch.hpp>

#include "gpu/profiling/profile_worker.hpp"
#include "gpu/worker/forked_worker.hpp"
#include "harness/scratch.hpp"
#include "harness/shell.hpp"
#include "harness/source_dir.hpp"

// The time of a worker without work. The times depend on the machine; their order does not.

namespace troupe::test {

namespace {

gpu::python_spec identity(const scratch& directory) {
  gpu::python_spec s;
  s.command = {"/usr/bin/python3", "-B", "-m", "troupe.worker"};
  s.program.file = source_dir() + "/python/troupe/programs/identity.py";
  s.socket_directory = directory.path();
  s.token = "secret";
  return s;
}

}  // namespace

TEST_CASE("requests to a worker of no work take time, and large tensors more than small ones") {
  if (test::run("/usr/bin/python3 -c 'import torch'").status != 0) {
    WARN("needs PyTorch (Debian: python3-torch)");
    return;
  }
  const scratch directory;
  constexpr std::uint64_t mebibytes = 16 << 20;
  const auto t = gpu::measure_worker(identity(directory), forked(), mebibytes, 5);
  INFO((t ? "" : t.error().text));
  REQUIRE(t);
  for (const auto step : {&part_times::forward_s, &part_times::recompute_s, &part_times::backward_s,
                          &part_times::update_s, &part_times::gradients_s}) {
    CHECK(t->plain.*step > 0);
    CHECK(t->plain.*step < 1);
  }
  CHECK(t->tensors_gbytes_s > 0);  // two copies of 16 MiB take longer than two of 64 bytes
  CHECK(t->tensors_gbytes_s < 1000);
}

TEST_CASE("a worker that cannot start is refused with the reason") {
  const scratch directory;
  auto s = identity(directory);
  s.program.file = "/no-such.py";
  s.command = {"/bin/false"};
  const auto t = gpu::measure_worker(s, forked(), 1 << 20, 3);
  REQUIRE_FALSE(t);
  CHECK_THAT(t.error().text, Catch::Contains("ended with status 1"));
}

}  // namespace troupe::test
