#include "planners/troupe/arriving_load.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

namespace troupe::planners {

// The utilization of a queue, estimated from its latest arrivals: work that arrived over the
// capacity in the same time. It decides how much a GPU-second costs jobs that have not come yet.
// Work is counted in seconds of the whole cluster, so that it needs no assumption on which GPUs do
// it. A job whose length is overstated (by its user, or by a wrong model) could make the load
// arbitrarily large; the time since its arrival bounds its share.
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
    const auto& table = tables.of(s.cluster, pools, a);
    if (table.cluster_samples_per_s <= 0) continue;
    const double samples = static_cast<double>(a.spec->iterations) * a.spec->global_batch;
    busy_s +=
        std::min(samples / table.cluster_samples_per_s + restart_s / gpus, (now_s - a.at_s) / gpus);
  }
  constexpr double min_share = 0.1;  // share of the GPUs that arriving jobs count on
  double held = 0;
  for (const auto& [id, j] : s.running)
    if (j.submitted_s < first_s) held += total_gpus(j.where);
  return busy_s / (now_s - first_s) / std::max(min_share, 1 - held / gpus);
}

namespace {

/// Arrivals with one table, which choose alike.
struct kind_of_job {
  const configuration_table* table = nullptr;
  double jobs = 0, samples = 0;
};

/// In the order of their first arrival. A job counts no more samples than its fastest configuration
/// could have done since the first one came: that bounds the share of an overstated length.
std::vector<kind_of_job> kinds_of_arrivals(const snapshot& s, double first_s, double window_s,
                                           const std::vector<gpu_pool>& pools,
                                           configuration_cache& tables) {
  const double restart_s = s.cluster.settings.restart_s;
  std::vector<kind_of_job> kinds;
  // Its order never reaches an output.
  std::unordered_map<const configuration_table*, std::size_t> known;
  for (const auto& a : s.arrivals) {
    if (a.at_s <= first_s + restart_s || a.at_s > first_s + window_s) continue;
    if (!a.plans || a.plans->empty()) continue;
    const auto& table = tables.of(s.cluster, pools, a);
    if (table.options.empty()) continue;
    const auto [at, fresh] = known.try_emplace(&table, kinds.size());
    if (fresh) kinds.push_back({&table, 0, 0});
    auto& k = kinds[at->second];
    const double samples = static_cast<double>(a.spec->iterations) * a.spec->global_batch;
    ++k.jobs;
    k.samples += std::min(samples, table.fastest_samples_per_s * window_s);
  }
  return kinds;
}

/// Seconds of a GPU of the fastest type that they take at this price.
double work_at(double price, const std::vector<kind_of_job>& kinds, double restart_s) {
  double work = 0;
  for (const auto& k : kinds) {
    const double samples = k.samples / k.jobs;
    double least = std::numeric_limits<double>::infinity(), taken = 0;
    for (const auto& o : k.table->options) {
      const double time_s = samples / o.how.samples_per_s + restart_s;
      const double cost = time_s * (1 + price * o.weight);
      if (cost < least) least = cost, taken = time_s * o.weight;
    }
    work += k.jobs * taken;
  }
  return work;
}

}  // namespace

double arriving_price(const snapshot& s, const std::vector<gpu_pool>& pools,
                      configuration_cache& tables) {
  if (s.arrivals.empty()) return 0;
  const double restart_s = s.cluster.settings.restart_s;
  const double first_s = s.arrivals.front().at_s;
  const double window_s = s.at_change().now_s - first_s;
  if (window_s <= restart_s) return 0;
  const auto kinds = kinds_of_arrivals(s, first_s, window_s, pools, tables);
  const auto speeds = relative_speeds(s.cluster);
  double weight = 0, gpus = 0;
  for (const auto& n : s.cluster.nodes) {
    weight += n.gpus * speeds[n.gpu];
    gpus += n.gpus;
  }
  if (gpus == 0) return 0;
  const double room =
      (1 - std::min(max_arriving_reserve, arriving_reserve / std::sqrt(gpus))) * weight * window_s;
  if (work_at(0, kinds, restart_s) <= room) return 0;
  double low = 0, high = max_arriving_price;
  constexpr int halvings = 8;
  for (int i = 0; i < halvings; ++i) {
    const double middle = (low + high) / 2;
    (work_at(middle, kinds, restart_s) > room ? low : high) = middle;
  }
  return high;
}

}  // namespace troupe::planners
