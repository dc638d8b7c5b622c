#pragma once

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/model/model_chain.hpp"

// How long kernels take: matrix products by their size, elementwise operations by the bytes that
// they move, and never less than their launches take the host (docs/planners/cost_model.md).

namespace troupe::planners {

/// What the formulas leave open, chosen by published runs (tests/planners/published_runs.csv).
struct kernel_constants {
  double memory_share = 0.625;  // of the bandwidth, reached by elementwise operations
  // Numbers that those read and write for each that a layer hands on: of what GPUs that share it
  // divide, and of what each of them has whole. With FlashAttention's generation of kernels, less.
  double divided_passes = 15, whole_passes = 3, flash_share = 0.3;
  double eager_matrix_passes = 4, matrix_passes = 3;  // over attention's matrix, forward
  double flash_recompute = 0.5;                       // of attention's forward, again in backward
  double logit_bytes = 4;                             // each moved, forward
  // The same where each operation of the loss reads and writes all logits: a third of what forward
  // and backward move (docs/planners/cost_model.md counts them).
  double loss_by_operations_bytes = 52.0 / 3;
  // What the host takes to launch a product and the operations around it, forward.
  double eager_launch_us = 270, launch_us = 70;
  // An update: what it takes beside its bytes, for each of the model's products, or in all.
  double eager_update_us = 1250, update_s = 0.02;
  double update_bytes = 28;  // AdamW's, a parameter, in single precision: reads 16, writes 12
};

/// What matrix products of a job reach on a GPU of this type however large they are, FLOP/s: of
/// half precision, unless the job says another one.
double flops_s(const gpu_type& gpu);
double flops_s(const job_spec& job, const gpu_type& gpu);

/// What an iteration of a job asks of one GPU.
struct gpu_work {
  double flops = 0;       // its share of a forward of one sample
  double parameters = 0;  // that it updates
  double tensor = 1;      // GPUs that share the layers
  double rows = 1;        // samples of a micro-batch
  kernel_counts kernels;  // of the layers, shared or not; logits: its own
};

struct kernel_times {
  double forward_s = 0, backward_s = 0;  // a micro-batch's
  double update_s = 0;
};

/// `backward`: of a forward. A type without kernel_us takes its FLOPs over flops_s, and an update
/// its bytes.
kernel_times time_kernels(const job_spec& job, const gpu_type& gpu, const gpu_work& work,
                          double backward);

/// What the host takes to launch a product and the operations around it; 0 for a type without
/// kernel_us.
double launch_s(const job_spec& job, const gpu_type& gpu);

/// The share of a link's rate that sums among a node's GPUs reach, where nobody measured it.
double ring_share(const gpu_type& gpu);

}  // namespace troupe::planners
