#pragma once

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cost/kernel_time.hpp"

// The part of communication that work beside it does not hide (docs/planners/cost_model.md,
// "Estimates of what no device here does"), s.

namespace troupe::planners {

/// A collective and the work that runs beside it, both in `pieces` that follow each other: the
/// longer of both, and one piece of the shorter; less the work. With one piece nothing is hidden.
double beside_work_s(double collective_s, double work_s, double pieces);

/// A stage's sum of gradients, or the exchange of its weights. Parts of the stage, `parts` of them,
/// become ready one after the other while the last micro-batches go through: of each part
/// `in_order` of them, each `step_s` / `parts` long. No less than one of its `layers` is left.
struct sum_window {
  double parts = 1, in_order = 1, step_s = 0, layers = 1;
};
double beside_last_steps_s(double sum_s, const sum_window& w);

/// Context parallelism: each of c GPUs has 1/c of the sequence, and the keys and values go around
/// them in c - 1 steps, each beside the attention to those before (Liu et al., Ring Attention,
/// arXiv:2310.01889).
struct context_ring {
  double gpus = 1;
  link over;        // of one GPU to the next
  double rows = 1;  // samples of a micro-batch
};
/// What is left of a forward's steps, of `attentions` layers that `w` has. 0 for one GPU.
double context_ring_s(const job_spec& job, const gpu_type& gpu, const gpu_work& w,
                      double attentions, const context_ring& r);

/// The link of context-parallel neighbours on nodes like this. Megatron-LM's order of ranks puts
/// them next to each other: inside a node or an NVLink domain if their groups of `tensor` GPUs fit,
/// else over the card that the node's GPUs share.
link context_link(const node& n, double tensor, double context);

}  // namespace troupe::planners
