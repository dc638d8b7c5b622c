#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "planners/policy/policy.hpp"

namespace troupe::planners {

/// Another policy, of which a subclass overrides some functions. Wrappers are stacked: what each
/// adds is independent of the policy inside, plug-ins included.
class wrapped_policy : public policy {
 public:
  std::string_view name() const override { return inner_->name(); }
  policy_traits traits() const override { return inner_->traits(); }
  double decide_again_s(const snapshot& s) const override { return inner_->decide_again_s(s); }
  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planning_budget& budget) const override {
    return inner_->plans_of(c, job, budget);
  }
  bool places(const job_spec& job, bool pipelines) const override {
    return inner_->places(job, pipelines);
  }
  std::vector<decision> decide(const snapshot& s, random_source& random) const override {
    return inner_->decide(s, random);
  }
  reason why_waiting(const snapshot& s, job_id job) const override {
    return inner_->why_waiting(s, job);
  }

 protected:
  /// Precondition: `inner` is not null.
  explicit wrapped_policy(std::shared_ptr<const policy> inner) : inner_{std::move(inner)} {}
  const policy& inner() const { return *inner_; }

 private:
  std::shared_ptr<const policy> inner_;
};

}  // namespace troupe::planners
