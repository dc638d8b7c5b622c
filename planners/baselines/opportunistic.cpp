// Opportunistic (docs/planners/baselines.md): in order of arrival, the user's number of the fastest
// idle GPUs; a job that runs out of memory is retried with twice as many. The trial-and-error
// baseline of Frenzy's paper.

#include <fmt/format.h>

#include "planners/core/bounds.hpp"
#include "planners/core/policy.hpp"
#include "planners/core/queue_order.hpp"
#include "planners/core/user_request.hpp"
#include "planners/pipeline/placement.hpp"

namespace troupe::planners {
namespace {

using kind = reason::kind;

// The cluster's GPUs that the job may use.
std::uint64_t max_for(const cluster& c, const job_spec& job) {
  std::vector<std::uint64_t> gpus(c.gpus.size());
  for (const auto& n : c.nodes) gpus[n.gpu] += n.gpus;
  std::uint64_t sum = 0;
  for (gpu_index g = 0; g < gpus.size(); ++g)
    sum += std::min<std::uint64_t>(gpus[g], most_of_type(c, job, g));
  return std::min<std::uint64_t>(sum, job.max_gpus.value_or(std::uint32_t(-1)));
}

// The user's number, doubled for every out-of-memory attempt, up to the maximum.
std::uint32_t count_of(const job_view& j, std::uint64_t max_gpus) {
  const auto doublings = std::min(j.out_of_memory, 31u);
  return static_cast<std::uint32_t>(std::min(std::uint64_t{j.spec->gpus} << doublings, max_gpus));
}

// Why no attempt remains; empty: one does.
std::optional<reason> hopeless(const job_view& j, std::uint64_t all) {
  if (j.spec->gpus == 0) return reason{kind::invalid, "requests no GPU"};
  if (j.spec->gpus > all) {
    return reason{
        kind::infeasible,
        fmt::format("requests {} GPUs; the cluster has {}{}{}", j.spec->gpus, all,
                    j.spec->required_gpu_type.empty() ? "" : " ", j.spec->required_gpu_type)};
  }
  if (j.out_of_memory == 0) return {};
  const auto tried = std::uint64_t{j.spec->gpus} << std::min(j.out_of_memory - 1, 31u);
  if (tried < all) return {};
  return reason{kind::infeasible, fmt::format("ran out of memory on all {} GPUs {}", all,
                                              j.spec->max_gpus || !j.spec->required_gpu_type.empty()
                                                  ? "that it may use (gpus, gpu_type)"
                                                  : "of the cluster")};
}

class opportunistic : public policy {
 public:
  std::string_view name() const override { return "opportunistic"; }

  std::vector<decision> decide(const snapshot& all_jobs, random_source&) const override {
    std::vector<decision> out;
    std::optional<idle_index> room;
    const auto s = start_trainings(all_jobs, out, room);
    if (s.waiting.empty() || s.idle.total_idle() == 0) return out;
    const auto types = fastest_first(s.cluster);
    const auto max_tensor = largest_node(s.cluster);
    std::optional<idle_index> rest;
    const idle_index* idle = &s.idle;
    for (const auto* j : in_order(s.waiting)) {
      if (idle->total_idle() == 0) break;
      const auto max_gpus = max_for(s.cluster, *j->spec);
      if (auto why = hopeless(*j, max_gpus)) {
        out.push_back({decision::kind::give_up, j->id, {}, {}, std::move(*why)});
        continue;
      }
      std::optional<idle_index> restricted;
      const auto& allowed = allowed_idle(s.cluster, *idle, *j->spec, restricted);
      auto where = fastest_idle(allowed, count_of(*j, max_gpus), types);
      if (!where) continue;  // a smaller job behind it may go first
      if (!rest) idle = &rest.emplace(s.idle);
      take(*rest, *where);
      auto how = split_for(s.cluster, *j->spec, *where, j->bytes_floor, max_tensor);
      out.push_back({decision::kind::start, j->id, std::move(how), std::move(*where), {}});
    }
    return out;
  }

  reason why_waiting(const snapshot& s, job_id job) const override {
    const auto it = s.waiting.find(job);
    if (it == s.waiting.end()) return {kind::unknown, fmt::format("job {} is not waiting", job)};
    const auto& j = it->second;
    if (j.training) return why_training_waits(s, j);
    const auto all = max_for(s.cluster, *j.spec);
    if (auto why = hopeless(j, all)) return *why;
    const auto doubled = j.out_of_memory == 0 ? std::string()
                                              : fmt::format(" ({} requested, doubled {} times)",
                                                            j.spec->gpus, j.out_of_memory);
    return {kind::insufficient, fmt::format("needs {} GPUs{}; {} are idle", count_of(j, all),
                                            doubled, s.idle.total_idle())};
  }
};

}  // namespace

std::unique_ptr<policy> make_opportunistic() {
  return std::make_unique<opportunistic>();
}

}  // namespace troupe::planners
