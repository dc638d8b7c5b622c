#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "messages/model.hpp"

// What training holds on a GPU, and by which rules it is counted. Nobody else counts memory.

namespace troupe::planners {

/// Bytes on one GPU, by what they are for.
struct memory_parts {
  double weights = 0, gradients = 0;
  double optimizer = 0;    // Adam's moments, and master weights
  double inputs = 0;       // of micro-batches that go forward again before backward
  double activations = 0;  // kept from forward to backward
  double ends = 0;         // beside the layers: masks, the last norm's input, logits
  double buffers = 0;      // of collectives: gradient buckets, gathered weights
  double context = 0;      // the runtime's own

  double total() const {
    return ((weights + gradients) + optimizer) + inputs + activations + ends + buffers + context;
  }
};

/// Bytes a parameter in mixed precision with Adam.
struct state_bytes {
  double weight = 2, gradient = 0, optimizer = 12;

  double total() const { return weight + gradient + optimizer; }
};
/// Frenzy, section IV.A, counts 20: gradients in half and in single precision.
inline constexpr state_bytes marp_states{2, 6, 12};
/// Megatron-LM accumulates gradients in single precision alone: 18.
inline constexpr state_bytes megatron_states{2, 4, 12};

// -- whole models, as papers count them

/// W = V*h + l*(12*h^2 + 13*h) (Frenzy, section IV.A); for a model given as operators, their sum.
double marp_parameters(const model& m);

/// Frenzy, section IV.A, B the global batch:
/// 20*W/t + s*B*h*l*(10/d + 24/(d*t) + 5*a*s/(d*h*t)).
/// Where d does not divide B, the largest share, ceil(B/d) samples, counts. For a model given as
/// operators the activations are what every operator hands on, kept whole by each member of a
/// tensor group.
memory_parts marp_memory(const model& m, std::uint32_t global_batch, std::uint32_t data,
                         std::uint32_t tensor);
/// Its total.
double marp_bytes(const model& m, std::uint32_t global_batch, std::uint32_t data,
                  std::uint32_t tensor);

/// A GPT under Megatron-LM, counted tensor by tensor: a padded vocabulary, the position embedding,
/// what a tensor group does not divide, and the ends beside the layers. `samples`: of one replica.
memory_parts megatron_memory(const model& m, double samples, std::uint32_t tensor);

// -- stages of a pipeline

/// What a GPU of a stage has of a model, for one sample: all of the stage, or its share where
/// several GPUs share the stage.
struct stage_part {
  std::uint32_t first = 0, count = 0;  // pieces; 2i and 2i + 1 are in layer i of a transformer
  std::uint32_t tensor_parallel = 1;   // GPUs that share it
  double flops = 0, parameters = 0;
  double activation_bytes = 0;  // kept from its forward to its backward
  double output_bytes = 0;

  bool operator==(const stage_part&) const = default;
};

/// What goes through a stage, and what its GPU has: the inputs of `held` micro-batches of `rows`
/// samples, and one micro-batch's activations.
struct stage_load {
  std::uint32_t rows = 1, held = 1;
  double max_bytes = std::numeric_limits<double>::infinity();
  bool recompute = true;  // else all activations of all that are held, in place of their inputs
};

/// Parameters as marp_states has them.
memory_parts memory_of(const stage_part& p, const stage_load& load);
/// In two parts: what grows with a stage's pieces, and what is the same for every stage.
double bytes_beside_inputs(const stage_part& p, const stage_load& load);
double input_bytes(const stage_part& p, const stage_load& load);

}  // namespace troupe::planners
