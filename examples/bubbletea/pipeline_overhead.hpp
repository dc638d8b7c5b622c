#pragma once

#include <cstdint>

#include "planners/bubbletea/prefill_times.hpp"

namespace bubbletea {

/// Seconds that pipelining adds to a prompt's prefill: `hops` times hop_s() without latency
/// (BubbleTea, section 6.6: B L H numbers of two bytes a hop). `gbps`: gigabits per second.
inline double pipeline_overhead_s(const troupe::planners::served_layer& layer, double gbps,
                                  double tokens, std::uint32_t hops) {
  return hops * layer.hidden_bytes(tokens) / (gbps * 1e9 / 8);
}

}  // namespace bubbletea
