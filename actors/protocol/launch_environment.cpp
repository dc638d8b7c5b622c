#include "actors/protocol/launch_environment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace troupe::actors {

std::vector<std::string> launch_environment(const cluster& c, const job_spec& spec,
                                            const lease_granted& lease, std::uint32_t part,
                                            bool local) {
  // Ranks follow the order of the parts, the first of which has rank 0 and the master.
  std::size_t world = 0, rank = 0;
  for (std::size_t i = 0; i < lease.parts.size(); ++i) {
    if (i < part) rank += lease.parts[i].devices.size();
    world += lease.parts[i].devices.size();
  }
  const auto& mine = lease.parts[part];
  const auto& first = c.nodes[lease.parts.front().node];
  const auto& reached_at = first.address.empty() ? first.name : first.address;
  const std::string master = local ? "127.0.0.1" : reached_at;
  // A simulated node, or a lease of an older version, has none: it gets one below the range of
  // outgoing connections, and the next lease another one.
  const auto port = lease.port.value_or(20000 + lease.lease % 10000);
  std::vector<std::string> env;
  auto set = [&](std::string_view key, const auto& value) {
    env.push_back(fmt::format("{}={}", key, value));
  };
  for (const auto& [key, value] : spec.environment) set(key, value);
  set("MASTER_ADDR", master);
  set("MASTER_PORT", port);
  set("WORLD_SIZE", world);
  set("NNODES", lease.parts.size());
  set("NODE_RANK", part);
  set("RANK", rank);
  // One process is started on each node: torchrun, or the program itself, starts those of the other
  // GPUs.
  set("LOCAL_RANK", 0);
  set("LOCAL_WORLD_SIZE", mine.devices.size());
  set("CUDA_VISIBLE_DEVICES", fmt::format("{}", fmt::join(mine.devices, ",")));
  set("PET_NNODES", lease.parts.size());
  set("PET_NODE_RANK", part);
  set("PET_NPROC_PER_NODE", mine.devices.size());
  set("PET_MASTER_ADDR", master);
  set("PET_MASTER_PORT", port);
  set("TROUPE_JOB", lease.job);
  set("TROUPE_JOB_NAME", spec.name);
  set("TROUPE_LEASE", lease.lease);
  set("TROUPE_NODE", c.nodes[mine.node].name);
  set("TROUPE_GPU_TYPE", c.gpu_of(mine.node).name);
  set("TROUPE_DATA_PARALLEL", lease.how.data_parallel);
  set("TROUPE_TENSOR_PARALLEL", lease.how.tensor_parallel);
  set("TROUPE_PIPELINE_PARALLEL", lease.how.pipeline_parallel);
  set("TROUPE_GLOBAL_BATCH", spec.global_batch);
  set("TROUPE_ITERATIONS", spec.iterations);
  set("TROUPE_PREDICTED_BYTES", fmt::format("{:.0f}", lease.predicted_bytes));
  set("TROUPE_OOM_EXIT", out_of_memory_exit);
  return env;
}

}  // namespace troupe::actors
