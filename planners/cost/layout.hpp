#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cost/model_partition.hpp"

// Assignment of stages to GPUs. A stage of a group of pipelines is in the datacenter that the plan
// names. Where it names none (ATLAS, section 4.2), consecutive stages are placed in one datacenter
// as long as they fit, and all peers of a stage always are, so that gradients do not cross the WAN.

namespace troupe::planners {

/// The GPUs of one stage: one, or several of one node.
struct device_place {
  node_index node = 0;
  std::vector<std::uint16_t> devices;
  std::uint32_t datacenter = 0;  // the node's

  bool operator==(const device_place&) const = default;
};

struct pipeline_layout {
  std::uint32_t stages = 1, pipelines = 1;
  std::vector<device_place> places;            // pipeline * stages + stage
  std::vector<std::vector<stage_part>> parts;  // of the model, by the plan's group, then stage
  std::vector<std::uint32_t> group_of;         // by pipeline

  const device_place& at(std::uint32_t pipeline, std::uint32_t stage) const {
    return places[std::size_t{pipeline} * stages + stage];
  }
  const std::vector<stage_part>& parts_of(std::uint32_t pipeline) const {
    return parts[group_of[pipeline]];
  }
  /// GPUs that send a stage's tensors together: those that share it.
  std::uint32_t flows(std::uint32_t pipeline, std::uint32_t stage) const {
    return std::max<std::uint32_t>(1, parts_of(pipeline)[stage].tensor_parallel);
  }
  /// The same between two stages of a pipeline, in either direction.
  std::uint32_t flows(std::uint32_t pipeline, std::uint32_t a, std::uint32_t b) const {
    return std::min(flows(pipeline, a), flows(pipeline, b));
  }
  std::uint32_t datacenter_of(std::uint32_t pipeline, std::uint32_t stage) const {
    return at(pipeline, stage).datacenter;
  }
  bool crosses(std::uint32_t pipeline, std::uint32_t from, std::uint32_t to) const {
    return datacenter_of(pipeline, from) != datacenter_of(pipeline, to);
  }
  /// The first pipeline of each group.
  std::vector<std::uint32_t> first_pipelines() const;
  /// The numbers of a pipeline's consecutive stages in one datacenter each.
  std::vector<std::uint32_t> stages_of_datacenter(std::uint32_t pipeline) const;
  /// Consecutive pipelines of which this stage is in one datacenter, by their first; more than one
  /// of them, and sums of gradients cross the WAN.
  std::vector<std::uint32_t> runs_of(std::uint32_t stage) const;
  bool operator==(const pipeline_layout&) const = default;
};

/// Assigns GPUs to each stage of a plan's pipelines, which follow one after the other: each takes
/// its stages' GPUs in order, from the first node of the lease in the stage's datacenter with
/// enough free GPUs of the stage's type. A plan whose stages name no datacenter may have one group
/// only, or a lease in one datacenter: then datacenters are used in the lease's order, and each
/// gets as many consecutive stages as its GPUs hold. Fails if GPUs remain, or stages and groups do
/// not match the model or each other.
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
