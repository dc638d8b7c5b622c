#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "planners/policy/wrapped_policy.hpp"

namespace troupe::planners {

/// A fault of a policy, as a sentence.
class policy_failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Wraps a policy that may be faulty, such as a plug-in: a fault must end in a sentence about the
/// policy, not in the controller. Exceptions, and decisions about a job,
/// node or GPU type that does not exist, make decide() throw policy_failure with a sentence that
/// begins with `who` ("the policy 'mine'"). Whether a start fits is left to fits().
class checked_policy final : public wrapped_policy {
 public:
  /// Reads its name and traits, once. Throws policy_failure.
  checked_policy(std::shared_ptr<const policy> inner, std::string who);

  std::string_view name() const override { return name_; }
  policy_traits traits() const override { return traits_; }
  double decide_again_s(const snapshot& s) const override;
  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planning_budget& budget) const override;
  std::vector<decision> decide(const snapshot& s, random_source& random) const override;
  /// An exception becomes the answer: explaining must not fail.
  reason why_waiting(const snapshot& s, job_id job) const override;

 private:
  std::string who_, name_;
  policy_traits traits_;
};

}  // namespace troupe::planners
