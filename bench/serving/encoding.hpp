#pragma once

#include "harness/runs.hpp"

namespace troupe::bench {

/// Prints a table: the processor time for texts without spaces of 0.5 and 1 MiB, with a vocabulary
/// in both kinds of files, the median of so many rounds.
void encoding_times(const scratch& in, int rounds);

}  // namespace troupe::bench
