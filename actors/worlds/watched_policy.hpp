#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "planners/policy/checked_policy.hpp"

namespace troupe::actors {

/// For simulations: records a policy's first failure, which ends the run, and decides nothing from
/// then on. (In a controller the failure would end the actor and recur after the restart.)
class watched_policy final : public planners::wrapped_policy {
 public:
  /// Fails if the policy cannot even return its name and round_s.
  static expected<std::shared_ptr<const watched_policy>> watch(
      std::shared_ptr<const planners::policy> inner) {
    try {
      const auto who = fmt::format("the policy '{}'", inner->name());
      return std::shared_ptr<const watched_policy>{new watched_policy{std::move(inner), who}};
    } catch (const std::exception& e) {
      return refuse(reason::kind::invalid, e.what());
    }
  }

  double decide_again_s(const planners::snapshot& s) const override {
    if (failure_) return 0;
    try {
      return inner().decide_again_s(s);
    } catch (const planners::policy_failure& e) {
      failure_ = {reason::kind::invalid, e.what()};
      return 0;
    }
  }
  std::vector<planners::decision> decide(const planners::snapshot& s,
                                         random_source& random) const override {
    if (failure_) return {};
    try {
      return inner().decide(s, random);
    } catch (const planners::policy_failure& e) {
      failure_ = {reason::kind::invalid, e.what()};
      return {};
    }
  }

  const std::optional<reason>& failure() const { return failure_; }

 private:
  watched_policy(std::shared_ptr<const planners::policy> inner, const std::string& who)
      : wrapped_policy{std::make_shared<planners::checked_policy>(std::move(inner), who)} {}

  mutable std::optional<reason> failure_;
};

}  // namespace troupe::actors
