#pragma once

namespace troupe::bench {

/// Trains one job as separate processes over gateways that emulate a WAN, under ATLAS's schedules
/// and the baselines, and prints a table of iteration times and ratios.
void print_schedules();

}  // namespace troupe::bench
