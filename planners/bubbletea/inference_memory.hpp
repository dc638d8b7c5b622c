#pragma once

#include <cstdint>

#include "planners/bubbletea/prefill_times.hpp"

namespace troupe::planners {

/// Bytes of a guest, beside the training on its GPU, by purpose (BubbleTea, section 5.1: the
/// model's layers stay on the GPU; embedding and head are elsewhere).
struct guest_memory {
  double weights = 0;
  double cache = 0;   // keys and values of the prompt in its layers, until they are sent
  double hidden = 0;  // the residual stream of an operation's rows, in single precision

  double total() const { return weights + cache + hidden; }
  bool operator==(const guest_memory&) const = default;
};

/// Memory of `layers` layers for one prompt of `tokens`, in operations of at most `rows` of them.
inline guest_memory inference_memory(const served_layer& layer, std::uint32_t layers, double tokens,
                                     double rows) {
  return {layers * layer.weight_bytes(), layers * layer.kv_bytes * tokens, 4 * layer.hidden * rows};
}

}  // namespace troupe::planners
