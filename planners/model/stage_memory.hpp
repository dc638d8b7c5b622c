#pragma once

#include <cstdint>
#include <limits>

#include "messages/domain/model.hpp"
#include "planners/model/model_chain.hpp"

// The memory of training on a GPU, and the formulas for it. The only place that counts memory.

namespace troupe::planners {

/// Bytes on one GPU, by purpose.
struct memory_parts {
  double weights = 0, gradients = 0;
  double optimizer = 0;    // Adam's moments, and master weights
  double inputs = 0;       // micro-batches that are recomputed
  double activations = 0;  // kept from forward to backward
  double ends = 0;         // outside the layers: masks, the last norm's input, logits
  double buffers = 0;      // collectives: gradient buckets, gathered weights
  double context = 0;      // the runtime's

  double total() const {
    return ((weights + gradients) + optimizer) + inputs + activations + ends + buffers + context;
  }
};

/// Bytes per parameter in mixed precision with Adam.
struct state_bytes {
  double weight = 2, gradient = 0, optimizer = 12;

  double total() const { return weight + gradient + optimizer; }
};
/// Frenzy, section IV.A, counts 20: gradients in half and in single precision.
inline constexpr state_bytes marp_states{2, 6, 12};

/// CUDA's context and the kernels that PyTorch loads with it: 1343 MiB on a V100
/// (docs/planners/memory.md). No GPU has said yet what the engine's is, which loads fewer.
inline constexpr double cuda_context_bytes = 1343.0 * 1024 * 1024;

/// The states of a number of parameters.
memory_parts states_of(const state_bytes& each, double parameters);

// -- whole models, as papers count them

/// W = V*h + l*(12*h^2 + 13*h) (Frenzy, section IV.A); for a model given as operators, their sum.
double marp_parameters(const model& m);

/// Frenzy, section IV.A, with B the global batch:
/// 20*W/t + s*B*h*l*(10/d + 24/(d*t) + 5*a*s/(d*h*t)).
/// If d does not divide B, the largest replica, ceil(B/d) samples, counts. For a model given as
/// operators the activations are the outputs of all operators, replicated in a tensor group.
memory_parts marp_memory(const model& m, std::uint32_t global_batch, std::uint32_t data,
                         std::uint32_t tensor);

// -- stages of a pipeline

/// A GPU's part of a model, for one sample: all of a stage, or its fraction if several GPUs share
/// the stage.
struct stage_part {
  std::uint32_t first = 0, count = 0;  // pieces; 2i and 2i + 1 are in layer i of a transformer
  std::uint32_t tensor_parallel = 1;   // GPUs that share the stage
  double flops = 0, parameters = 0;
  double activation_bytes = 0;  // kept from its forward to its backward
  double output_bytes = 0;
  kernel_counts kernels{};  // for the whole stage
  bool last = false;        // it ends with the model's head
  double state_bytes = 0;   // of the optimizer, of a program's layers

  bool operator==(const stage_part&) const = default;
};

/// The load of a stage: `held` micro-batches of `rows` samples in flight, of which it keeps the
/// inputs, and one micro-batch's activations.
struct stage_load {
  std::uint32_t rows = 1, held = 1;
  double max_bytes = std::numeric_limits<double>::infinity();
  bool recompute = true;        // else all activations of all micro-batches in flight
  std::uint32_t pipelines = 1;  // that sum their gradients
};

}  // namespace troupe::planners
