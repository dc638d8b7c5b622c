#pragma once

#include "messages/domain/serving.hpp"

namespace troupe::planners {

/// Bytes of a decoder on its GPU, by purpose. Everything is in single precision
/// (docs/serving.md, "Models").
struct decoder_memory {
  double weights = 0;  // a tied head is there twice: as embedding and as head
  double cache = 0;    // kv_gb
  double scratch = 0;  // logits of what is decoded together, activations of a prefill's rows

  double total() const { return weights + cache + scratch; }
  bool operator==(const decoder_memory&) const = default;
};

/// Rows of a prefill that a decoder computes at a time.
inline constexpr double decoder_prefill_rows = 512;

decoder_memory decoder_memory_of(const serving& s);

}  // namespace troupe::planners
