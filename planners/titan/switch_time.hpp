#pragma once

#include <span>

#include "messages/domain/model.hpp"
#include "messages/domain/plan.hpp"

// The cost of passing GPUs from one fine-tuning job to the next (Gao et al., SoCC 2022, section
// 4.3 and figure 3), as this project models it (docs/planners/titan.md, "Switches"). Bytes and
// seconds.

namespace troupe::planners {

struct switch_rates {
  double setup_s = 30;         // a worker's start: process, libraries, the device's context
  double copy_bytes_s = 12e9;  // between a GPU and its host, each way: PCIe 3.0 x16
  double disk_bytes_s = 2e9;   // of a node, shared by its GPUs
};

/// The bytes that a job moves when it starts and when it ends.
struct switch_bytes {
  double load = 0, store = 0;                  // of all: weights; weights and optimizer state
  double load_per_gpu = 0, store_per_gpu = 0;  // the share of one GPU
};
/// In single precision with Adam: 4 bytes of a parameter are loaded, 12 stored. Replicas load what
/// one of them reads, and one of them stores.
switch_bytes bytes_to_switch(const model& m, const plan& how);

/// One after another: `before` is stored, a worker is set up, and `next` is loaded.
double naive_switch_s(const switch_bytes& before, const switch_bytes& next,
                      const switch_rates& rates);

/// Pipelined: the next worker was set up ahead and has read its weights from disk, and the file of
/// the one before is written behind it. What is left are both copies, which use the two directions
/// of the bus; `room`: the GPU holds both at once, otherwise one follows the other.
double pipelined_switch_s(const switch_bytes& before, const switch_bytes& next,
                          const switch_rates& rates, bool room);

/// A device of a pipeline that another pipeline follows, in the order of the latter's stages.
struct switch_stage {
  double free_s = 0;  // when the first pipeline's part there has ended
  double copy_s = 0;  // pipelined_switch_s() of the two stages
};
/// When a pipeline ends that follows another one on its devices. Stage i begins its first forward
/// once its device is free and its weights are there, and is `forward_s` behind the stage before it
/// at least; everything after that takes as long as in a pipeline that starts on idle devices,
/// which would take `alone_s`. Exact for GPipe with stages of equal times.
double followed_end_s(std::span<const switch_stage> stages, double forward_s, double alone_s);

/// The nodes of an allocation in the order in which a pipeline's parts on `before` end: the last
/// backward of an iteration ends on the last stage first. Other nodes come last.
allocation in_switch_order(const allocation& before, const allocation& next);

}  // namespace troupe::planners
