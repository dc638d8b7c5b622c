#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/published/runs.hpp"

namespace troupe::bench {

/// A published time beside the predicted one.
struct judged_run {
  harness::published_run run;
  double predicted_s = 0;

  double error() const { return predicted_s / run.iteration_s - 1; }
};

/// A published peak of memory beside the predicted one.
struct judged_peak {
  harness::published_run run;
  double predicted_bytes = 0;

  double error() const { return predicted_bytes / run.peak_bytes - 1; }
};

/// A run that has no prediction.
struct unsaid_run {
  harness::published_run run;
  std::string reason;
};

struct judgement {
  std::vector<judged_run> runs;
  std::vector<judged_run> of_ratios;  // compared only between GPU types
  std::vector<judged_peak> peaks;
  std::vector<unsaid_run> unsaid;
};

judgement judge(const std::vector<harness::published_run>& runs,
                const std::vector<gpu_type>& catalogue);

/// Errors in groups, by two words: source and set, or source and kind.
using grouped_runs = std::map<std::pair<std::string, std::string>, std::vector<const judged_run*>>;
grouped_runs by_source_and_set(const judgement& j);
grouped_runs by_source_and_gpu(const judgement& j);
grouped_runs by_source_and_kind(const judgement& j);

std::vector<double> errors_of(const std::vector<const judged_run*>& runs);
/// Kendall's tau of the published and predicted times.
double rank_correlation_of(const std::vector<const judged_run*>& runs);

}  // namespace troupe::bench
