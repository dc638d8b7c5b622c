#include "planners/cost/guesses.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "planners/cost/node_sums.hpp"
#include "planners/cost/profile.hpp"
#include "planners/model/job_device.hpp"

namespace troupe::planners {

std::vector<std::string> guesses_of(const cluster& c, const job_spec& job,
                                    const allocation& where) {
  std::vector<std::string> all;
  if (job.slots || job.serve || device_facts_of(job).is_host_core) return all;
  for (const auto& share : where) {
    const auto& n = c.nodes[share.node];
    const auto& gpu = c.gpus[n.gpu];
    const auto* known = sums_of_kind(n.intra, gpu);
    if (share.gpus < 2 || !known || !known->guess || n.intra.group_rates) continue;
    if (sums_profile_of(job, gpu) != nullptr) continue;
    auto text = fmt::format(
        "All-reduces among {} GPUs of a node on {} are a guess, by {}: measure them with `troupe "
        "profile`, or give the node's intra group_rates",
        gpu.name, n.intra.name, known->source);
    if (std::ranges::find(all, text) == all.end()) all.push_back(std::move(text));
  }
  return all;
}

}  // namespace troupe::planners
