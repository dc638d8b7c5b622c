#include "planners/policy/with_trainings.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "messages/domain/work_kind.hpp"
#include "planners/policy/placement.hpp"
#include "planners/policy/split_views.hpp"
#include "planners/policy/wrapped_policy.hpp"

namespace troupe::planners {

namespace {

/// Published policies place jobs on counts of GPUs; none of them cuts a model into stages or
/// chooses datacenters. So trainings are placed before them by Algorithm 1, and the policy decides
/// about the rest of the cluster. The policies troupe, espresso and crius place them themselves
/// (places()).
class trainings_policy final : public wrapped_policy {
 public:
  explicit trainings_policy(std::shared_ptr<const policy> inner)
      : wrapped_policy{std::move(inner)} {}

  bool places(const job_spec&, bool) const override { return true; }

  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planning_budget& budget) const override {
    if (facts_of(job).pipelines && !inner().places(job, true)) return plans_for(c, job, budget);
    return inner().plans_of(c, job, budget);
  }

  double decide_again_s(const snapshot& s) const override {
    const auto waiting = split(s.waiting), running = split(s.running);
    return inner().decide_again_s(s.with(s.idle, waiting.seen(), running.seen()));
  }

  std::vector<decision> decide(const snapshot& s, random_source& random) const override {
    const auto waiting = split(s.waiting), running = split(s.running);
    std::vector<decision> all;
    std::optional<idle_index> room;
    const auto rest = start_trainings(s.with(s.idle, waiting.own(), s.running), all, room);
    auto others = inner().decide(s.with(rest.idle, waiting.seen(), running.seen()), random);
    std::ranges::move(others, std::back_inserter(all));
    return all;
  }

  reason why_waiting(const snapshot& s, job_id job) const override {
    const auto at = s.waiting.find(job);
    if (at == s.waiting.end()) return not_waiting(job);
    if (is_own(at->second)) return why_training_waits(s, at->second);
    const auto waiting = split(s.waiting), running = split(s.running);
    return inner().why_waiting(s.with(s.idle, waiting.seen(), running.seen()), job);
  }

 private:
  bool is_own(const job_view& j) const { return !inner().places(*j.spec, j.training); }
  split_views split(const job_views& all) const {
    return {all, [this](const job_view& j) { return is_own(j); }};
  }
};

}  // namespace

std::unique_ptr<policy> with_trainings(std::shared_ptr<const policy> inner) {
  return std::make_unique<trainings_policy>(std::move(inner));
}

}  // namespace troupe::planners
