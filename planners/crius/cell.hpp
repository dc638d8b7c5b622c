#pragma once

#include <cstdint>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"

// Cells (Crius, section 4.2; docs/planners/cells.md): a job with its GPUs (type and count) and its
// pipeline stages fixed. Data and tensor parallelism of each stage stay open.

namespace troupe::planners {

/// One operator of a chain that is cut into stages.
struct chain_operator {
  double flops = 0;
  double output_bytes = 0;  // handed to the next operator
};

/// Operators [first, first + count), and the stage's GPUs: a power of two.
struct cell_stage {
  std::uint32_t first = 0, count = 0, gpus = 0;

  bool operator==(const cell_stage&) const = default;
};

struct cell_stages {
  std::vector<cell_stage> stages;  // empty: there are none
  double flops_a_gpu = 0;          // of the stage that has most
  double cut_bytes = 0;            // handed from stage to stage, all together
  bool cheapest_edges = false;     // no other edges are cheaper: the paper's own rule has this cut
};

/// Stages for `gpus` GPUs: contiguous ranges of operators whose powers of two sum to `gpus`; no
/// stage has more than `spread` times the GPUs of another (0: it may). Among those whose most FLOPs
/// per GPU are within `balance` (a share) of the least possible, the cut of the fewest bytes; of
/// these the one with the least sum of squared FLOPs per GPU. Exact. O(stages * gpus * log(gpus) *
/// operators^2) at worst, times log(gpus) with a spread.
cell_stages determine_stages(const std::vector<chain_operator>& chain, std::uint32_t gpus,
                             std::uint32_t stages, double balance = 0.05, std::uint32_t spread = 0);

/// A model's pieces (model_chain.hpp) as such a chain; the head goes with the last one.
std::vector<chain_operator> chain_of(const model& m);

/// The paper's N_G: what the job asks for (`gpus`); of a training that says its stages or
/// pipelines, as many GPUs as those are.
std::uint32_t wanted_gpus(const job_spec& job);
/// All Cells of a training go by the same rows a micro-batch, so that it may change from one to
/// another and learn the same. Of other jobs, and of one that says its rows, nothing changes.
job_spec with_common_rows(job_spec job);
/// The counts that Cells are made for: half of it, it, and double, within the job's bounds.
std::vector<std::uint32_t> cell_counts(const job_spec& job);
/// The numbers of stages: 1, 2, 4, ..., at most as many as GPUs and pieces.
std::vector<std::uint32_t> cell_depths(const job_spec& job, std::uint32_t gpus);

}  // namespace troupe::planners
