#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "formats/traces/trace.hpp"
#include "messages/base/reason.hpp"

// The (trace, cluster) pairs of bench_policies.

namespace troupe::bench {

struct load {
  std::string trace;     // for people
  std::string cluster;   // a shipped cluster's name
  std::string workload;  // rule that gives the rows models
  std::vector<formats::trace_row> rows;

  std::string name() const { return trace + ", " + workload + " on " + cluster; }
};

/// The loads of the traces that ship.
expected<std::vector<load>> shipped_loads();

/// The loads of every CSV file below a directory that is a trace of Troupe's, Philly or ITP: its
/// densest window of that length, on three clusters.
expected<std::vector<load>> loads_below(const std::filesystem::path& directory, double hours);

}  // namespace troupe::bench
