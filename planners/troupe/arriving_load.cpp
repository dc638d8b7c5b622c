#include "planners/troupe/arriving_load.hpp"

#include <algorithm>

namespace troupe::planners {

// The utilization of a queue, estimated from its latest arrivals: work that arrived over the
// capacity in the same time. It decides how much a GPU-second costs jobs that have not come yet.
// Work is counted in seconds of the whole cluster, so that it needs no assumption on which GPUs do
// it. A job whose length is overstated (by its user, or by a wrong model) could make the load
// arbitrarily large; the time since its arrival bounds its share.
double arriving_load(const snapshot& s, configuration_cache& tables, const known_jobs& running,
                     known_arrivals& known) {
  if (s.arrivals.empty()) return 0;
  const double now_s = s.at_change().now_s;
  const double restart_s = s.cluster.settings.restart_s;
  const double first_s = s.arrivals.front().at_s;
  if (now_s <= first_s + restart_s) return 0;
  const double gpus = tables.gpus();
  double busy_s = 0;
  const auto cluster_s = [&](const recent_arrival& a) -> double {
    if (!a.plans || a.plans->empty()) return 0;
    const auto& table = tables.of(s.cluster, a);
    if (table.cluster_samples_per_s <= 0) return 0;
    const double samples = static_cast<double>(a.spec->iterations) * a.spec->global_batch;
    return samples / table.cluster_samples_per_s + restart_s / gpus;
  };
  const auto as_known = [&](const recent_arrival& a) {
    return known_arrival{a.at_s, a.spec, a.plans, cluster_s(a)};
  };
  for (const auto& a : known.follow(s.arrivals, as_known)) {
    if (a.cluster_s <= 0 || a.at_s <= first_s + restart_s || a.at_s > now_s) continue;
    busy_s += std::min(a.cluster_s, (now_s - a.at_s) / gpus);
  }
  constexpr double min_share = 0.1;  // share of the GPUs that arriving jobs count on
  double held = 0;
  for (const auto& j : running.all())
    if (j.submitted_s < first_s) held += j.gpus;
  return busy_s / (now_s - first_s) / std::max(min_share, 1 - held / gpus);
}

}  // namespace troupe::planners
