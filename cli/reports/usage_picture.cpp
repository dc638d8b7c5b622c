#include "cli/reports/usage_picture.hpp"

#include <algorithm>
#include <cmath>

#include "cli/reports/completion_times.hpp"
#include "web/report/report_page.hpp"

namespace troupe::cli {

namespace {

// A page has as many points as a window has room for, however long the trace.
constexpr int columns = 410;
constexpr std::size_t curve_points = 200;

/// Usage over time in equal steps: mean GPUs and maximum waiting jobs per step.
struct series {
  std::vector<double> gpus = std::vector<double>(columns, 0.0);
  std::vector<std::uint32_t> waiting = std::vector<std::uint32_t>(columns, 0);
};

// A step function over time. GPUs are averaged over a column, so that the area is the GPU time; of
// waiting jobs the maximum counts, since a short queue must not vanish in a long trace.
series resample(const std::vector<studies::usage_point>& points, double from_s, double until_s) {
  series result;
  const double step_s = (until_s - from_s) / columns;
  if (step_s <= 0) return result;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double begin = points[i].at_s, end = i + 1 < points.size() ? points[i + 1].at_s : until_s;
    const auto column = [&](double at_s) {
      return std::clamp(static_cast<int>((at_s - from_s) / step_s), 0, columns - 1);
    };
    for (int k = column(begin); k <= column(end); ++k) {
      const auto at = static_cast<std::size_t>(k);
      const double overlap =
          std::min(end, from_s + (k + 1) * step_s) - std::max(begin, from_s + k * step_s);
      result.gpus[at] += points[i].gpus_held * std::max(0.0, overlap) / step_s;
      result.waiting[at] = std::max(result.waiting[at], points[i].jobs_waiting);
    }
  }
  for (auto& g : result.gpus) g = std::round(g * 100) / 100;  // a short page
  return result;
}

}  // namespace

std::string usage_picture(const comparison& c) {
  std::uint32_t gpus = 0;
  for (const auto& n : c.on.nodes) gpus += n.gpus;
  // One time axis for all policies: their runs begin together and end apart.
  double from_s = 1e300, until_s = 0;
  for (const auto& r : c.results) {
    const auto& usage = r.record->usage();
    if (usage.empty()) continue;
    from_s = std::min(from_s, usage.front().at_s);
    until_s = std::max(until_s, usage.back().at_s);
  }
  json policies = json::array();
  for (const auto& r : c.results) {
    auto s = resample(r.record->usage(), from_s, until_s);
    policies.push_back({{"policy", r.policy},
                        {"average_jct_s", r.average_jct_s},
                        {"average_queue_s", r.average_queue_s},
                        {"gpu_utilization", r.gpu_utilization},
                        {"failed", r.failed},
                        {"oom_failures", r.oom_failures},
                        {"held", std::move(s.gpus)},
                        {"waiting", std::move(s.waiting)},
                        {"jct_cdf", completion_times(completion_times_of(r), curve_points)}});
  }
  return web::report_page({{"kind", "usage"},
                           {"cluster", c.on.name},
                           {"gpus", gpus},
                           {"span_s", std::max(until_s - std::min(from_s, until_s), 1e-9)},
                           {"policies", std::move(policies)}});
}

}  // namespace troupe::cli
