#include "planners/devices/guesses.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "messages/admission/gpu_guess.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/devices/node_sums.hpp"
#include "planners/devices/profile.hpp"
#include "planners/model/job_device.hpp"

namespace troupe::planners {

namespace {

void add_once(std::vector<std::string>& all, std::string guess) {
  if (std::ranges::find(all, guess) == all.end()) all.push_back(std::move(guess));
}

bool has_rate_on(const job_spec& job, const gpu_type& gpu) {
  return facts_of(job).elastic &&
         std::ranges::find(job.program.elastic->rates, gpu.name, &program_rate::gpu) !=
             job.program.elastic->rates.end();
}

/// Have all-reduces among GPUs of this node rates that nobody has measured there?
bool has_guessed_sums(const job_spec& job, const gpu_type& gpu, const link& intra) {
  const auto* known = sums_of_kind(intra, gpu);
  return known && known->guess && !intra.group_rates && sums_profile_of(job, gpu) == nullptr;
}

}  // namespace

bool is_estimated_by_guess(const job_spec& job, const gpu_type& gpu) {
  const bool measured = job.slots || (job.train && !job.train->costs.empty()) ||
                        device_facts_of(job).is_host_core || gpu.kernel_us == 0 ||
                        profile_of(job, gpu) != nullptr;
  return !measured && has_guessed_efficiency(gpu);
}

bool rests_on_guess(const job_spec& job, const gpu_type& gpu) {
  return is_estimated_by_guess(job, gpu) && !has_rate_on(job, gpu);
}

std::vector<std::string> guesses_of(const cluster& c, const job_spec& job,
                                    const std::vector<gpu_index>& types, const allocation& where) {
  std::vector<std::string> all;
  const auto work = facts_of(job);
  if (!work.has_model || !work.has_end || device_facts_of(job).is_host_core) return all;
  for (const auto t : types)
    if (rests_on_guess(job, c.gpus[t]))
      add_once(all,
               fmt::format("the speed of {} is a guess: no training and no products of it were "
                           "measured (troupe profile measures it)",
                           c.gpus[t].name));
  for (const auto& share : where) {
    const auto& n = c.nodes[share.node];
    const auto& gpu = c.gpus[n.gpu];
    if (share.gpus < 2 || !has_guessed_sums(job, gpu, n.intra)) continue;
    add_once(all,
             fmt::format("all-reduces among {} GPUs of a node on {} are a guess, by {}: measure "
                         "them with `troupe profile`, or give the node's intra group_rates",
                         gpu.name, n.intra.name, sums_of_kind(n.intra, gpu)->source));
  }
  return all;
}

std::vector<std::string> guesses_of(const cluster& c, const job_spec& job,
                                    const std::vector<plan>& plans, const allocation& where) {
  std::vector<gpu_index> types;
  std::vector<char> has_several(c.gpus.size());
  for (const auto& share : where) types.push_back(c.nodes[share.node].gpu);
  for (const auto& p : plans) {
    types.insert(types.end(), p.gpu_types.begin(), p.gpu_types.end());
    if (p.gpus() < 2) continue;
    for (const auto g : p.gpu_types) has_several[g] = 1;
  }
  // One node of each kind: the sentences are the same.
  auto nodes = where;
  std::set<std::pair<gpu_index, std::string>> seen;
  for (node_index n = 0; n < c.nodes.size(); ++n) {
    const auto& x = c.nodes[n];
    if (x.gpus > 1 && has_several[x.gpu] && has_guessed_sums(job, c.gpus[x.gpu], x.intra) &&
        seen.emplace(x.gpu, x.intra.name).second)
      nodes.push_back({n, 2});
  }
  return guesses_of(c, job, types, nodes);
}

std::vector<std::string> guesses_of(const cluster& c, const job_spec& job,
                                    const allocation& where) {
  std::vector<gpu_index> types;
  for (const auto& share : where) types.push_back(c.nodes[share.node].gpu);
  return guesses_of(c, job, types, where);
}

}  // namespace troupe::planners
