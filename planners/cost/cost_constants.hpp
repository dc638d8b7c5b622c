#pragma once

#include "messages/domain/cluster.hpp"

namespace troupe::planners {

/// The cost model's parameters.
struct cost_constants {
  double backward = 2;        // FLOPs of a backward, in forwards
  double overlap = 0.5;       // share of the last micro-batch's backward that hides the all-reduce
  double gradient_bytes = 2;  // per parameter in an all-reduce
  // The share of a sharded program's gathers and scatters that the work beside them takes longer.
  double hidden_share = 0.5;
  double wan_gbps = unlisted_wan_gbps;
  double wan_latency_us = unlisted_wan_rtt_ms * 1e3 / 2;
};

}  // namespace troupe::planners
