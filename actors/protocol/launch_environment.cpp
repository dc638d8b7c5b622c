#include "actors/protocol/launch_environment.hpp"

#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "messages/base/invariant.hpp"
#include "messages/domain/stated_length.hpp"

namespace troupe::actors {

namespace {

/// Where other nodes reach this one.
std::string host_of(const cluster& c, node_index n, bool local) {
  const auto& node = c.nodes[n];
  if (local) return "127.0.0.1";
  return node.address.empty() ? node.name : node.address;
}

/// The user's variables, and those of every process that works for a lease.
class variables {
 public:
  variables(const cluster& c, const job_spec& spec, const lease_granted& lease,
            std::uint32_t part) {
    for (const auto& [key, value] : spec.program.environment) set(key, value);
    const auto node = lease.parts[part].node;
    set("TROUPE_JOB", lease.job);
    set("TROUPE_JOB_NAME", spec.name);
    set("TROUPE_LEASE", lease.lease);
    set("TROUPE_NODE", c.nodes[node].name);
    set("TROUPE_GPU_TYPE", c.gpu_of(node).name);
  }
  template <class Value>
  void set(std::string_view key, const Value& value) {
    all_.push_back(fmt::format("{}={}", key, value));
  }
  std::vector<std::string> take() { return std::move(all_); }

 private:
  std::vector<std::string> all_;
};

}  // namespace

std::vector<std::string> worker_environment(const cluster& c, const job_spec& spec,
                                            const lease_granted& lease, std::uint32_t part,
                                            bool local) {
  variables v{c, spec, lease, part};
  v.set("TROUPE_WORKER_ADDRESS", host_of(c, lease.parts[part].node, local));
  return v.take();
}

std::vector<std::string> launch_environment(const cluster& c, const job_spec& spec,
                                            const lease_granted& lease, std::uint32_t part,
                                            bool local) {
  // Ranks follow the order of the parts, the first of which has rank 0 and the master.
  std::size_t world = 0, rank = 0;
  for (std::size_t i = 0; i < lease.parts.size(); ++i) {
    if (i < part) rank += lease.parts[i].devices.size();
    world += lease.parts[i].devices.size();
  }
  TROUPE_INVARIANT(part < lease.parts.size(), "a process is of one of its lease's parts");
  const auto& mine = lease.parts[part];
  const auto master = host_of(c, lease.parts.front().node, local);
  // A simulated node, or a lease of an older version, has none: it gets one below the range of
  // outgoing connections, and the next lease another one.
  const auto port = lease.port.value_or(20000 + lease.lease % 10000);
  variables v{c, spec, lease, part};
  v.set("MASTER_ADDR", master);
  v.set("MASTER_PORT", port);
  v.set("WORLD_SIZE", world);
  v.set("NNODES", lease.parts.size());
  v.set("NODE_RANK", part);
  v.set("RANK", rank);
  // One process is started on each node: torchrun, or the program itself, starts those of the other
  // GPUs.
  v.set("LOCAL_RANK", 0);
  v.set("LOCAL_WORLD_SIZE", mine.devices.size());
  v.set("CUDA_VISIBLE_DEVICES", fmt::format("{}", fmt::join(mine.devices, ",")));
  v.set("PET_NNODES", lease.parts.size());
  v.set("PET_NODE_RANK", part);
  v.set("PET_NPROC_PER_NODE", mine.devices.size());
  v.set("PET_MASTER_ADDR", master);
  v.set("PET_MASTER_PORT", port);
  v.set("TROUPE_DATA_PARALLEL", lease.how.data_parallel);
  v.set("TROUPE_TENSOR_PARALLEL", lease.how.tensor_parallel);
  v.set("TROUPE_PIPELINE_PARALLEL", lease.how.pipeline_parallel);
  if (const auto batch = stated_batch(spec)) v.set("TROUPE_GLOBAL_BATCH", *batch);
  if (const auto iterations = stated_iterations(spec)) v.set("TROUPE_ITERATIONS", *iterations);
  v.set("TROUPE_PREDICTED_BYTES", fmt::format("{:.0f}", lease.predicted_bytes));
  v.set("TROUPE_OOM_EXIT", out_of_memory_exit);
  return v.take();
}

}  // namespace troupe::actors
