#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "planners/core/policy.hpp"

namespace troupe::planners {

/// What a policy has done wrong, as a sentence.
class policy_failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A policy that may be wrong, such as a plug-in's. Whatever it throws, and a decision about a job,
/// a node or a GPU type that is not there, comes out of decide() as a policy_failure whose sentence
/// begins with `who` ("the policy 'mine'"). Whether a start fits is not asked here: fits() decides.
class checked_policy final : public policy {
 public:
  /// Asks for its name and round_s, once. Throws policy_failure.
  checked_policy(std::shared_ptr<const policy> inner, std::string who);

  std::string_view name() const override { return name_; }
  double round_s() const override { return round_s_; }
  std::vector<decision> decide(const snapshot& s, random_source& random) const override;
  /// What it throws is the answer: a person's question ends nothing.
  reason why_waiting(const snapshot& s, job_id job) const override;

 private:
  std::shared_ptr<const policy> inner_;
  std::string who_, name_;
  double round_s_ = 0;
};

}  // namespace troupe::planners
