#pragma once

#include <cstdint>

namespace troupe {

/// The conclusions from a job's attempts that ran out of memory.
struct memory_history {
  std::uint32_t out_of_memory = 0;  // attempts that did
  /// The memory that it turned out to need, relative to what was predicted with the cluster's
  /// headroom; plans that were made since have it.
  double factor = 1;
  double bytes_floor = 0;  // per GPU: plans that need at most this have run out of memory
  // The last of these attempts: its GPUs, and the memory of the smallest of them. 0: there was
  // none, or it is from a journal that did not record it yet.
  std::uint32_t tried_gpus = 0;
  double tried_bytes = 0;
  bool alone = false;  // one of them was in a union: it is not merged again

  bool operator==(const memory_history&) const = default;
};

}  // namespace troupe
