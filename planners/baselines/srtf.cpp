// Shortest remaining time first, non-preemptive: TITAN's first baseline (Gao et al., SoCC 2022,
// section 2; docs/planners/baselines.md). Each job gets the number of GPUs that its user asked for.
// A job that finds no room lets smaller ones pass: otherwise one large short job would hold the
// whole cluster idle, which no such scheduler does.

#include <algorithm>
#include <limits>
#include <tuple>

#include <fmt/format.h>

#include "messages/domain/work_kind.hpp"
#include "planners/baselines/data_parallel_options.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/policy/progress.hpp"

namespace troupe::planners {
namespace {

/// On the GPUs that it asks for; infinite if its length is not known, so that it comes last.
double remaining_s(const snapshot& s, const job_view& j) {
  if (!j.facts().has_known_length) return std::numeric_limits<double>::infinity();
  return iterations_left(s, j) * requested_iteration_s(j);
}

/// The waiting jobs that have plans, the shortest first within a priority.
std::vector<const job_view*> shortest_first(const snapshot& s) {
  std::vector<std::pair<double, const job_view*>> order;
  for (const auto& [id, j] : s.waiting)
    if (has_plans(j)) order.emplace_back(remaining_s(s, j), &j);
  std::ranges::sort(order, {}, [](const auto& x) {
    return std::tuple(-x.second->spec->priority, x.first, x.second->id);
  });
  std::vector<const job_view*> jobs;
  for (const auto& [seconds, j] : order) jobs.push_back(j);
  return jobs;
}

class srtf final : public data_parallel_policy {
 public:
  std::string_view name() const override { return "srtf"; }

  std::vector<decision> decide(const snapshot& s, random_source&) const override {
    std::vector<decision> out;
    for (const auto& [id, j] : s.waiting) gives_up(j, out);
    const auto pools = pools_of(s.cluster, s.idle);
    free_gpus free{s.cluster, s.idle};
    for (const auto* j : shortest_first(s))
      if (auto p = place_requested(pools, free, *j))
        out.push_back(start_job(j->id, std::move(p->how), std::move(p->where)));
    return out;
  }

 private:
  std::vector<std::uint32_t> counts_for(const job_spec& job) const override {
    return {job.request.gpus};
  }

  reason why_behind(const snapshot& s, const job_view& j) const override {
    const auto jobs = shortest_first(s);
    const auto before = std::ranges::find(jobs, &j) - jobs.begin();
    return {
        reason::kind::insufficient,
        fmt::format("requests {} GPUs of one type, which are not free; {} waiting jobs have less "
                    "time left",
                    requested(j), before)};
  }
};

}  // namespace

std::unique_ptr<policy> make_srtf() {
  return std::make_unique<srtf>();
}

}  // namespace troupe::planners
