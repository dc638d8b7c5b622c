#pragma once

#include <cstdint>

#include "planners/model/stage_memory.hpp"

namespace frenzy {

/// A GPT under Megatron-LM, tensor by tensor: a padded vocabulary, the position embedding, what a
/// tensor group replicates, and the memory outside the layers. `samples`: of one replica.
inline troupe::planners::memory_parts megatron_memory(const troupe::model& m, double samples,
                                                      std::uint32_t tensor) {
  // Gradients are accumulated in single precision only: 18 bytes per parameter.
  constexpr troupe::planners::state_bytes each{2, 4, 12};
  const double h = m.hidden, l = m.layers, s = m.sequence, a = m.heads, t = tensor;
  // The vocabulary is padded to a multiple of 128 per rank of the tensor group.
  const double vocabulary = 128.0 * ((m.vocabulary + 128 * tensor - 1) / (128 * tensor));
  // Divided: QKV, attention output, both matrices of the MLP, and the column-parallel biases.
  // Replicated: the row-parallel biases, both norms, and the position embedding.
  const double layer = (12 * h * h + 7 * h) / t + 6 * h;
  auto parts = states_of(each, vocabulary * h + s * h + l * layer + 2 * h);
  // Korthikanti et al., eq. 2, plus what it omits outside the layers: the dropout mask of the
  // embedding, the inputs of the last norm and of the head, and the fp32 logits.
  parts.activations = s * samples * h * l * (10 + 24 / t + 5 * a * s / (h * t));
  parts.ends = s * samples * (h + 2 * h + 2 * h + 4 * vocabulary);
  return parts;
}

}  // namespace frenzy
