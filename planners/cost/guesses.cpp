#include "planners/cost/guesses.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "messages/domain/gpu_guess.hpp"
#include "planners/cost/node_sums.hpp"
#include "planners/cost/profile.hpp"
#include "planners/model/job_device.hpp"

namespace troupe::planners {

namespace {

void add_once(std::vector<std::string>& all, std::string guess) {
  if (std::ranges::find(all, guess) == all.end()) all.push_back(std::move(guess));
}

}  // namespace

bool rests_on_guess(const job_spec& job, const gpu_type& gpu) {
  const bool measured = job.slots || (job.train && !job.train->costs.empty()) ||
                        device_facts_of(job).is_host_core || gpu.kernel_us == 0 ||
                        profile_of(job, gpu) != nullptr;
  return !measured && has_guessed_efficiency(gpu);
}

std::vector<std::string> guesses_of(const cluster& c, const job_spec& job,
                                    const std::vector<gpu_index>& types, const allocation& where) {
  std::vector<std::string> all;
  if (job.slots || job.serve || device_facts_of(job).is_host_core) return all;
  for (const auto t : types)
    if (rests_on_guess(job, c.gpus[t]))
      add_once(all,
               fmt::format("the speed of {} is a guess: no training and no products of it were "
                           "measured (troupe profile measures it)",
                           c.gpus[t].name));
  for (const auto& share : where) {
    const auto& n = c.nodes[share.node];
    const auto& gpu = c.gpus[n.gpu];
    const auto* known = sums_of_kind(n.intra, gpu);
    if (share.gpus < 2 || !known || !known->guess || n.intra.group_rates) continue;
    if (sums_profile_of(job, gpu) != nullptr) continue;
    add_once(all,
             fmt::format("all-reduces among {} GPUs of a node on {} are a guess, by {}: measure "
                         "them with `troupe profile`, or give the node's intra group_rates",
                         gpu.name, n.intra.name, known->source));
  }
  return all;
}

std::vector<std::string> guesses_of(const cluster& c, const job_spec& job,
                                    const allocation& where) {
  std::vector<gpu_index> types;
  for (const auto& share : where) types.push_back(c.nodes[share.node].gpu);
  return guesses_of(c, job, types, where);
}

}  // namespace troupe::planners
