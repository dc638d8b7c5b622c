#pragma once

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cost/cost_constants.hpp"
#include "planners/devices/kernel_time.hpp"

// The part of communication that work beside it does not hide (docs/planners/cost_model.md,
// "Estimates of what no device here does"), s.

namespace troupe::planners {

/// A collective of GPUs that share a layer, and the products beside it, both in `pieces` that
/// follow each other: the longer of both and one piece of the shorter; less the work. With one
/// piece nothing is hidden.
double left_of_collective_s(double collective_s, double work_s, double pieces);

/// When a stage's gradients are ready: its `parts` one after the other while the last micro-batches
/// go through, `in_order` of them through each part, each `step_s` / `parts` long.
struct sum_window {
  double parts = 1, in_order = 1, step_s = 0;
};
/// The part of a sum of gradients, or an exchange of weights, that is too long for these steps; no
/// less than what hiding it costs the work beside it (cost_constants::hidden_share).
double left_of_sum_s(double sum_s, const sum_window& w, const cost_constants& k = {});

/// Context parallelism: each of c GPUs has 1/c of the sequence, and the keys and values go around
/// them in c - 1 steps, each beside the attention to those before (Liu et al., Ring Attention,
/// arXiv:2310.01889).
struct context_ring {
  double gpus = 1;
  link over;        // of one GPU to the next
  double rows = 1;  // samples of a micro-batch
};
/// The part that is left of a forward, of `attentions` layers that `w` has. 0 for one GPU.
double context_ring_s(const job_spec& job, const gpu_type& gpu, const gpu_work& w,
                      double attentions, const context_ring& r);

/// The link of context-parallel neighbours on nodes like this. Megatron-LM's order of ranks puts
/// them next to each other: inside a node or an NVLink domain if their groups of `tensor` GPUs fit,
/// else over the card that the node's GPUs share.
link context_link(const node& n, double tensor, double context);

}  // namespace troupe::planners
