#include "cli/reports/completion_times.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::cli {

std::vector<double> completion_times_of(const studies::policy_result& r) {
  std::vector<double> all;
  for (const auto& [id, j] : r.record->jobs())
    if (j.state == job_state::finished) all.push_back(j.completion_s());
  return all;
}

json completion_times(std::vector<double> jct_s, std::size_t max_points) {
  std::ranges::sort(jct_s);
  const auto points = std::min(jct_s.size(), max_points);
  json fractions = json::array(), seconds = json::array();
  for (std::size_t i = 1; i <= points; ++i) {
    const auto rank = (i * jct_s.size() + points - 1) / points;  // nearest
    fractions.push_back(static_cast<double>(rank) / static_cast<double>(jct_s.size()));
    seconds.push_back(jct_s[rank - 1]);
  }
  return {{"fraction", std::move(fractions)}, {"jct_s", std::move(seconds)}};
}

}  // namespace troupe::cli
