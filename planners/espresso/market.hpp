#pragma once

#include <cstdint>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/espresso/provision.hpp"

// One datacenter's prices, and the search over its GPUs: the T, c_t and Lim_t of Espresso's
// equations 1 and 3 (docs/planners/espresso.md, "Spot instances").

namespace troupe::planners {

/// A cluster whose GPU types have the prices of one of its datacenters, per GPU and hour.
struct market {
  cluster priced;
  std::vector<double> interruptions_per_hour;  // per node, by GPU type; empty: no spot instances
};

/// The market of a datacenter; with `spot` at spot prices, for the types that have one.
inline market market_of(const cluster& c, std::uint32_t datacenter, bool spot) {
  market m{c, {}};
  m.priced.prices.clear();
  for (gpu_index g = 0; g < c.gpus.size(); ++g) {
    const auto* p = price_at(c, g, datacenter);
    if (!p) continue;
    const bool interruptible = spot && p->spot_per_hour > 0;
    m.priced.gpus[g].price_per_hour = interruptible ? p->spot_per_hour : p->per_hour;
    if (!interruptible) continue;
    m.interruptions_per_hour.resize(c.gpus.size());
    m.interruptions_per_hour[g] = p->interruptions_per_hour;
  }
  return m;
}

/// cheapest_plan (cost_tree.hpp) for idle GPUs that are all in the market's datacenter, without the
/// explanation.
provision search_market(const market& m, const idle_index& idle, const job_spec& job,
                        planning_budget& budget, const provision_options& options);

}  // namespace troupe::planners
