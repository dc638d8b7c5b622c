#pragma once

#include "judged_runs.hpp"

namespace troupe::bench {

/// By source and set, by source and GPU type, and by kind.
void print_summaries(const judgement& j);
/// Every run.
void print_runs(const judgement& j);
/// How much faster a GPU type is than another in runs that differ in nothing else.
void print_ratios(const judgement& j);
/// Peaks of memory by run, and by GPU type.
void print_peaks(const judgement& j);
/// The rows without a prediction, by reason.
void print_unsaid(const judgement& j);
/// The memory that drivers said that GPUs held (tests/planners/published_memory.csv).
void print_readings(const std::vector<harness::published_memory>& readings);

}  // namespace troupe::bench
