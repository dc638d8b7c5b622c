#include "actors/protocol/launch_environment.hpp"

#include <algorithm>

#include <catch2/catch.hpp>

#include "messages/base/environment.hpp"

using namespace troupe;
using namespace troupe::actors;

TEST_CASE(
    "a program on the second node of a lease gets its rank, its master address and its GPUs") {
  cluster c;
  c.gpus.push_back({"A100-40GB", 40, 312, 19.5, 1555, 0.45, 3.67, ""});
  c.datacenters.push_back({"dc1", ""});
  c.nodes.push_back({"a", 0, 0, 4, {}, {}});
  c.nodes.push_back({"b", 0, 0, 4, {}, {}});
  job_spec spec;
  spec.program.environment["DATA"] = "/data";
  lease_granted lease;
  lease.lease = 5;
  lease.job = 3;
  lease.how = {2, 3, 1, 36e9, 0, 0, {}};
  lease.parts = {{0, 1, {0, 1, 2, 3}}, {1, 1, {1, 2}}};
  const auto env = launch_environment(c, spec, lease, 1, false);
  auto has = [&](const std::string& line) {
    return std::find(env.begin(), env.end(), line) != env.end();
  };
  for (const auto* line :
       {"MASTER_ADDR=a", "MASTER_PORT=20005", "WORLD_SIZE=6", "NODE_RANK=1", "RANK=4",
        "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "CUDA_VISIBLE_DEVICES=1,2", "PET_NNODES=2",
        "TROUPE_DATA_PARALLEL=2", "TROUPE_TENSOR_PARALLEL=3", "TROUPE_PIPELINE_PARALLEL=1",
        "DATA=/data"}) {
    INFO(line);
    CHECK(has(line));
  }
  // These are exactly the variables that a job's own environment may not set.
  for (const auto& line : env) {
    const auto name = line.substr(0, line.find('='));
    INFO(name);
    CHECK(is_reserved_variable(name) == (name != "DATA"));
  }
  for (const auto name : launch_variables) {
    INFO(name);
    CHECK(std::any_of(env.begin(), env.end(),
                      [&](const auto& line) { return line.starts_with(std::string{name} + "="); }));
  }
  c.nodes[0].address = "10.0.0.7";
  const auto addressed = launch_environment(c, spec, lease, 1, false);
  CHECK(std::find(addressed.begin(), addressed.end(), "MASTER_ADDR=10.0.0.7") != addressed.end());
  const auto here = launch_environment(c, spec, lease, 0, true);
  CHECK(std::find(here.begin(), here.end(), "MASTER_ADDR=127.0.0.1") != here.end());
}
