#pragma once

#include <cstdint>
#include <vector>

#include "formats/traces/trace.hpp"

namespace troupe::formats {

/// Parameters of TITAN's workload (Gao et al., SoCC 2022, section 5), whose trace is not public.
struct titan_workload {
  double jobs = 320;   // at density 1
  double hours = 8;    // over which they arrive
  double density = 1;  // times `jobs`
  std::uint64_t seed = 1;
};

/// Fine-tuning jobs of ViT-Large/16 with data-set cards, ordered by submission. From the paper: the
/// number of jobs, the hours, durations from 5 minutes to 10 hours of which more than half are
/// below 30 minutes, and that most jobs ask for several GPUs. Ours, with figures that
/// docs/traces.md has: the distributions, the cards and the share of jobs that opt out of merging.
std::vector<trace_row> make_titan_trace(const titan_workload& w);

}  // namespace troupe::formats
