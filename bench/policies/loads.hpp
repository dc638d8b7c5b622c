#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "formats/traces/trace.hpp"
#include "messages/base/reason.hpp"
#include "messages/domain/job.hpp"

// The (trace, cluster) pairs of bench_policies.

namespace troupe::bench {

struct load {
  std::string trace;     // for people
  std::string cluster;   // a shipped cluster's name
  std::string workload;  // rule that gives the rows models
  std::vector<formats::trace_row> rows;

  std::string name() const { return trace + ", " + workload + " on " + cluster; }
};

/// The loads of the traces that ship, and one of short jobs.
expected<std::vector<load>> shipped_loads();

/// The loads of every CSV file below a directory that is a trace of Troupe's, Philly or ITP: its
/// densest window of that length, on three clusters.
expected<std::vector<load>> loads_below(const std::filesystem::path& directory, double hours);

/// Makes this fraction of the jobs elastic programs: of any layout, with 10 s to 2 min from their
/// GPUs to the first iteration, and 1 to 30 s to save.
void make_elastic(std::vector<arrival>& jobs, double fraction, std::uint64_t seed);

}  // namespace troupe::bench
