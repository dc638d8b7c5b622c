#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cost/model_partition.hpp"

// Assignment of stages to GPUs (ATLAS, section 4.2): consecutive stages are placed in one
// datacenter as long as they fit, and all peers of a stage always are, so that gradients never
// cross the WAN.

namespace troupe::planners {

/// The GPUs of one stage: one, or several of one node.
struct device_place {
  node_index node = 0;
  std::vector<std::uint16_t> devices;

  bool operator==(const device_place&) const = default;
};

struct pipeline_layout {
  std::uint32_t stages = 1, pipelines = 1;
  std::vector<device_place> places;                 // pipeline * stages + stage
  std::vector<stage_part> parts;                    // of the model, by stage
  std::vector<std::uint32_t> datacenters;           // those with stages, in the pipeline's order
  std::vector<std::uint32_t> stages_of_datacenter;  // number of stages, as `datacenters`

  const device_place& at(std::uint32_t pipeline, std::uint32_t stage) const {
    return places[std::size_t{pipeline} * stages + stage];
  }
  /// GPUs that send a stage's tensors together: those that share it.
  std::uint32_t flows(std::uint32_t stage) const {
    return std::max<std::uint32_t>(1, parts[stage].tensor_parallel);
  }
  /// The same over a hop in either direction.
  std::uint32_t flows(std::uint32_t a, std::uint32_t b) const {
    return std::min(flows(a), flows(b));
  }
  /// The datacenter of a stage and all its peers.
  std::uint32_t datacenter_of(std::uint32_t stage) const;
  bool operator==(const pipeline_layout&) const = default;
};

/// Assigns GPUs to each stage of a plan's pipelines. Datacenters are used in the lease's order, and
/// each gets as many consecutive stages as its GPUs hold. Inside a datacenter the pipelines follow
/// one after the other: each takes its stages' GPUs in order, from the first node of the lease with
/// enough free GPUs of the stage's type. Fails if GPUs remain or the stages do not match the model.
expected<pipeline_layout> lay_out_pipelines(const cluster& c, const std::vector<lease_part>& parts,
                                            const job_spec& job, const plan& how);
/// The same before the lease has chosen GPUs: those of each node are numbered from 0.
expected<pipeline_layout> lay_out_pipelines(const cluster& c, const allocation& where,
                                            const job_spec& job, const plan& how);

/// The node of each stage of each pipeline, as in a layout's places.
expected<std::vector<node_index>> nodes_of_stages(const cluster& c, const allocation& where,
                                                  const plan& how);

/// Stages per datacenter, given the GPUs of each in order (ATLAS, Algorithm 1, lines 2 to 10): as
/// many as there are GPUs for all pipelines, at most `max_each` (0: no limit). If the sum is less
/// than `stages`, they do not fit.
std::vector<std::uint32_t> partition(const std::vector<std::uint32_t>& gpus, std::uint32_t stages,
                                     std::uint32_t pipelines, std::uint32_t max_each);

}  // namespace troupe::planners
