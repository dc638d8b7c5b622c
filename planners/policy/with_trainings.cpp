#include "planners/policy/with_trainings.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "planners/policy/placement.hpp"
#include "planners/policy/wrapped_policy.hpp"

namespace troupe::planners {

namespace {

bool places(const policy& p, const job_view& j) {
  return p.places(*j.spec, j.training);
}

/// A list without the jobs that a policy does not place; the list itself if there are none.
class placed_jobs {
 public:
  placed_jobs(const policy& by, const job_views& all) : all_{all} {
    some_ = std::ranges::any_of(all, [&](const auto& j) { return !places(by, j.second); });
    if (!some_) return;
    for (const auto& [id, j] : all) {
      auto& list = places(by, j) ? placed_ : others_;
      list.emplace_hint(list.end(), id, j);
    }
  }
  const job_views& placed() const { return some_ ? placed_ : all_; }
  const job_views& others() const { return others_; }

 private:
  const job_views& all_;
  bool some_ = false;
  job_views placed_, others_;
};

class trainings_policy final : public wrapped_policy {
 public:
  explicit trainings_policy(std::shared_ptr<const policy> inner)
      : wrapped_policy{std::move(inner)} {}

  bool places(const job_spec&, bool) const override { return true; }

  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planning_budget& budget) const override {
    if (is_pipeline_job(job) && !inner().places(job, true)) return plans_for(c, job, budget);
    return inner().plans_of(c, job, budget);
  }

  double decide_again_s(const snapshot& s) const override {
    const placed_jobs waiting{inner(), s.waiting}, running{inner(), s.running};
    return inner().decide_again_s(s.with(s.idle, waiting.placed(), running.placed()));
  }

  std::vector<decision> decide(const snapshot& s, random_source& random) const override {
    const placed_jobs waiting{inner(), s.waiting}, running{inner(), s.running};
    std::vector<decision> all;
    std::optional<idle_index> room;
    const auto rest = start_trainings(s.with(s.idle, waiting.others(), s.running), all, room);
    auto others = inner().decide(s.with(rest.idle, waiting.placed(), running.placed()), random);
    std::ranges::move(others, std::back_inserter(all));
    return all;
  }

  reason why_waiting(const snapshot& s, job_id job) const override {
    const auto at = s.waiting.find(job);
    if (at == s.waiting.end())
      return {reason::kind::unknown, fmt::format("job {} is not waiting", job)};
    if (!inner().places(*at->second.spec, at->second.training))
      return why_training_waits(s, at->second);
    const placed_jobs waiting{inner(), s.waiting}, running{inner(), s.running};
    return inner().why_waiting(s.with(s.idle, waiting.placed(), running.placed()), job);
  }
};

}  // namespace

std::unique_ptr<policy> with_trainings(std::shared_ptr<const policy> inner) {
  return std::make_unique<trainings_policy>(std::move(inner));
}

}  // namespace troupe::planners
