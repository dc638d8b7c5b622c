#pragma once

namespace troupe::bench {

/// Trains one job as separate processes over gateways that emulate a WAN, under ATLAS's schedules
/// and those that it is compared with, and prints a table of iteration times and ratios.
void print_schedules();

}  // namespace troupe::bench
