#include "cli/reports/training_figures.hpp"

#include <cmath>
#include <numeric>

namespace troupe::cli {

namespace {

/// Clocks have nanosecond resolution; smaller differences are rounding.
double whole_nanoseconds(double s) {
  return std::round(s * 1e9) / 1e9;
}

}  // namespace

std::vector<double> iteration_lengths_s(const training_report& r) {
  std::vector<double> s;
  for (const auto& i : r.iterations) s.push_back(whole_nanoseconds(i.end_s - i.begin_s));
  return s;
}

double utilization(const training_report& r) {
  double busy = 0, all = 0;
  for (const auto& i : r.iterations) {
    busy += i.busy_s;
    all += (i.end_s - i.begin_s) * r.stages * r.pipelines;
  }
  return all > 0 ? busy / all : 0;
}

double mean_iteration_s(const training_report& r) {
  const auto all = iteration_lengths_s(r);
  return all.empty() ? 0
                     : whole_nanoseconds(std::accumulate(all.begin(), all.end(), 0.0) /
                                         static_cast<double>(all.size()));
}

}  // namespace troupe::cli
