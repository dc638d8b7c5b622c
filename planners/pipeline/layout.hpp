#pragma once

#include <cstdint>
#include <vector>

#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "messages/plan.hpp"
#include "messages/reason.hpp"
#include "planners/pipeline/model_partition.hpp"

// Which GPU holds which stage of which pipeline (ATLAS, section 4.2): stages that follow each other
// lie in one datacenter, and all peers of a stage always do, so that gradients never cross the WAN.

namespace troupe::planners {

/// Whose a stage is: one GPU, or those of a node that share it.
struct device_place {
  node_index node = 0;
  std::vector<std::uint16_t> devices;

  bool operator==(const device_place&) const = default;
};

struct pipeline_layout {
  std::uint32_t stages = 1, pipelines = 1;
  std::vector<device_place> places;                 // pipeline * stages + stage
  std::vector<stage_part> parts;                    // of the model, by stage
  std::vector<std::uint32_t> datacenters;           // that hold stages, in the pipeline's order
  std::vector<std::uint32_t> stages_of_datacenter;  // as many of them

  const device_place& at(std::uint32_t pipeline, std::uint32_t stage) const {
    return places[std::size_t{pipeline} * stages + stage];
  }
  /// Of a stage and all its peers.
  std::uint32_t datacenter_of(std::uint32_t stage) const;
  bool operator==(const pipeline_layout&) const = default;
};

/// Gives each stage of a plan's pipelines its GPUs. Datacenters follow each other as the lease
/// names them, and each takes as many of the stages that follow as its GPUs hold. In a datacenter
/// the pipelines take turns: each takes its stages' GPUs in order, a stage's from the first node of
/// the lease that has as many of its type left. Refuses GPUs that the plan's stages do not use up,
/// and stages that are not the model's.
expected<pipeline_layout> lay_out_pipelines(const cluster& c, const std::vector<lease_part>& parts,
                                            const job_spec& job, const plan& how);
/// The same before GPUs have numbers: each node's are counted from 0.
expected<pipeline_layout> lay_out_pipelines(const cluster& c, const allocation& where,
                                            const job_spec& job, const plan& how);

/// The node of each stage of each pipeline, as in a layout's places.
expected<std::vector<node_index>> nodes_of_stages(const cluster& c, const allocation& where,
                                                  const plan& how);

/// Stages a datacenter, given the GPUs of each in order (Algorithm 1, lines 2 to 10): as many as
/// there are GPUs for all pipelines, at most `max_each` (0: no limit). Fewer than `stages` in all:
/// they do not fit.
std::vector<std::uint32_t> partition(const std::vector<std::uint32_t>& gpus, std::uint32_t stages,
                                     std::uint32_t pipelines, std::uint32_t max_each);

}  // namespace troupe::planners
