#pragma once

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/model/model_chain.hpp"

// How long kernels take: matrix products by their size, elementwise operations by the bytes that
// they move, and never less than their launches take the host (docs/planners/cost_model.md,
// "Kernels", whose symbols the comments name). A roofline alone is too fast for small products and
// unfused operations.

namespace troupe::planners {

/// The free parameters of the formulas, fitted to published runs
/// (tests/planners/published_runs.csv).
struct kernel_constants {
  double memory_share = 0.625;  // M: share of the bandwidth that elementwise operations reach
  // Numbers read and written per number that a layer outputs (n_s): in parts that the GPUs of a
  // layer divide, and in parts that each of them has whole. `flash_share` of them with fused
  // layers.
  double divided_passes = 15, whole_passes = 3, flash_share = 0.4;
  double eager_matrix_passes = 4, matrix_passes = 3;  // n_m: over attention's matrix, forward
  double flash_recompute = 0.5;  // share of attention's forward that backward repeats
  // FlashAttention's rate, relative to that of large products; and on GPUs whose products use
  // instructions of warp groups, which FlashAttention 2 does not (compute capability 9 and 10).
  double flash_speed = 0.95, warp_share = 0.629;
  // Moved per logit, forward: a third of what forward and backward move by PyTorch's loss, and if
  // each operation of the loss reads and writes all logits (the page counts them).
  double loss_bytes = 32.0 / 3, loss_by_operations_bytes = 52.0 / 3;
  // L: host time to launch a product and the operations around it, forward.
  double eager_launch_us = 270, launch_us = 70;
  // Launches of a backward, in forwards: of an eager program autograd's threads launch it, without
  // the interpreter that launches its forward.
  double backward_launches = 2, eager_backward_launches = 1;
  // Time of an update beside its bytes: per product of the model, or in all.
  double eager_update_us = 1250, update_s = 0.02;
  double update_bytes = 28;  // per parameter, AdamW in single precision: reads 16, writes 12
};

/// P e: the rate of large matrix products on a GPU of this type, FLOP/s; in the job's precision,
/// half precision by default.
double flops_s(const gpu_type& gpu);
double flops_s(const job_spec& job, const gpu_type& gpu);
/// The rate of attention's products, FLOP/s: in half precision where others are in 8 bits.
double attention_flops_s(const job_spec& job, const gpu_type& gpu);

/// One GPU's work in an iteration.
struct gpu_work {
  double flops = 0;       // its share of the forward of one sample
  double parameters = 0;  // parameters that it updates
  double tensor = 1;      // t: GPUs that share the layers
  double rows = 1;        // samples per micro-batch
  kernel_counts kernels;  // of the layers, shared or not; logits: its own
  bool divided = false;   // several GPUs share the model's layers, or have stages of it
  double head_flops = 0;  // the head's part of `flops`
};

struct kernel_times {
  double forward_s = 0, backward_s = 0;  // per micro-batch
  double update_s = 0;                   // per iteration
  // Parts of these in which the GPU waits for the host's launches.
  double forward_idle_s = 0, backward_idle_s = 0;
};

/// Are all numbers of the job's training in single precision?
bool has_single_precision(const job_spec& job);

/// Times of one GPU's kernels. `backward`: the backward's FLOPs in forwards. For a type without
/// kernel_us a forward is FLOPs over flops_s alone, and an update its bytes over the bandwidth.
kernel_times time_kernels(const job_spec& job, const gpu_type& gpu, const gpu_work& work,
                          double backward);

/// L in seconds: host time to launch a product and the operations around it; 0 for a type without
/// kernel_us.
double launch_s(const job_spec& job, const gpu_type& gpu);

/// Does a recomputation end before each layer's last product, whose output no backward needs? That
/// of PyTorch does; without kernel_us a forward is its FLOPs, all of them.
bool stops_early(const job_spec& job, const gpu_type& gpu);

/// The share of a link's rate that all-reduces inside a node reach, if there is no measurement.
double ring_share(const gpu_type& gpu);

}  // namespace troupe::planners
