#include "studies/completion_shares.hpp"

#include <algorithm>

namespace troupe::studies {

// Unions take numbers of jobs, too, so that only the order of arrival is the same in both runs.
std::optional<completion_shares> compare_completions(const workload_record& run,
                                                     const workload_record& other) {
  std::size_t both = 0, better = 0, worse = 0;
  auto at = other.jobs().begin();
  for (const auto& [id, j] : run.jobs()) {
    if (at == other.jobs().end()) break;
    const auto& there = (at++)->second;
    if (j.state != job_state::finished || there.state != job_state::finished) continue;
    both += 1;
    better += j.completion_s() <= (1 - noted_difference) * there.completion_s();
    worse += j.completion_s() >= (1 + noted_difference) * there.completion_s();
  }
  if (both == 0) return {};
  const auto share = [&](std::size_t n) {
    return static_cast<double>(n) / static_cast<double>(both);
  };
  return completion_shares{share(better), share(worse)};
}

}  // namespace troupe::studies
