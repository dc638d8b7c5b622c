#pragma once

#include <cstdint>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"

// Cells (Crius, sections 4.2 and 6.1; docs/planners/cells.md): a job with its GPUs (type and count)
// and its pipeline stages fixed. Data and tensor parallelism of each stage stay open.

namespace troupe::planners {

/// One operator of a chain that is cut into stages; both numbers are for one sample.
struct chain_operator {
  double flops = 0;
  double output_bytes = 0;  // of the tensor that the next operator needs; infinite: not cut here
};

/// A stage: operators [first, first + count) on `gpus` GPUs, a power of two.
struct cell_stage {
  std::uint32_t first = 0, count = 0, gpus = 0;

  bool operator==(const cell_stage&) const = default;
};

struct cell_stages {
  std::vector<cell_stage> stages;  // empty: no cut is possible
  double cut_bytes = 0;            // sum over the edges between stages
  bool cheapest_edges = false;     // no other edges are cheaper: the paper's rule has the same cut
};

/// Stage determination (section 4.2, Figure 7): contiguous ranges of operators on powers of two of
/// GPUs that sum to `gpus`; no stage has more than `spread` times the GPUs of another (0: no
/// limit). Among the cuts whose largest FLOPs per GPU are within a share `balance` of the least
/// possible, the one with the fewest bytes between stages; of these the one with the least sum of
/// squared FLOPs per GPU. Exact. O(stages * gpus * log(gpus) * operators^2) at worst, times
/// log(gpus) with a spread.
cell_stages determine_stages(const std::vector<chain_operator>& chain, std::uint32_t gpus,
                             std::uint32_t stages, double balance = 0.05, std::uint32_t spread = 0);

/// A model's pieces (model_chain.hpp) as a chain; the last one includes the head. `profile`: if it
/// has the times of a program's layers, these take the place of FLOPs; null: none.
std::vector<chain_operator> chain_of(const model& m, const device_profile* profile = nullptr);

/// N_G of section 6.1: the job's `gpus`; for a training that specifies stages or pipelines, the
/// GPUs that those need.
std::uint32_t wanted_gpus(const job_spec& job);
/// The job with rows per micro-batch that suit all of its Cells, so that a training can change from
/// one Cell to another and compute the same sums. Other jobs, and trainings that specify their
/// rows, are returned unchanged.
job_spec with_common_rows(job_spec job);
/// The GPU counts of Cells: N_G / 2, N_G and 2 N_G, within the job's bounds.
std::vector<std::uint32_t> cell_counts(const job_spec& job);
/// The numbers of stages of Cells: 1, 2, 4, ..., at most as many as GPUs and pieces.
std::vector<std::uint32_t> cell_depths(const job_spec& job, std::uint32_t gpus);

}  // namespace troupe::planners
