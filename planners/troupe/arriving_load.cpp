#include "planners/troupe/arriving_load.hpp"

#include <algorithm>

namespace troupe::planners {

double arriving_load(const snapshot& s, const std::vector<gpu_pool>& pools,
                     configuration_cache& tables) {
  if (s.arrivals.empty()) return 0;
  const double now_s = s.at_change().now_s;
  const double restart_s = s.cluster.settings.restart_s;
  const double first_s = s.arrivals.front().at_s;
  if (now_s <= first_s + restart_s) return 0;
  double gpus = 0, busy_s = 0;
  for (const auto& n : s.cluster.nodes) gpus += n.gpus;
  for (const auto& a : s.arrivals) {
    if (a.at_s <= first_s + restart_s || a.at_s > now_s || !a.plans || a.plans->empty()) continue;
    job_view j;
    j.spec = a.spec;
    j.plans = a.plans;
    const auto& table = tables.of(s.cluster, pools, j);
    if (table.cluster_samples_per_s <= 0) continue;
    const double samples = static_cast<double>(a.spec->iterations) * a.spec->global_batch;
    busy_s +=
        std::min(samples / table.cluster_samples_per_s + restart_s / gpus, (now_s - a.at_s) / gpus);
  }
  return busy_s / (now_s - first_s);
}

}  // namespace troupe::planners
