#pragma once

#include <map>
#include <memory>
#include <string>

#include "actors/protocol.hpp"

namespace troupe::actors {

/// Answers how fast, how much memory, which plans: from the cost model, or from profiles that the
/// cluster or the job has. Jobs that are alike share
/// one list of plans.
class estimator_state {
 public:
  estimator_state() = default;
  void start(std::shared_ptr<const troupe::cluster> c) { cluster_ = std::move(c); }
  plans_made plans_for(const plans_wanted& w);
  void appraise(proposal& p) const;

 private:
  std::shared_ptr<const troupe::cluster> cluster_;
  std::map<std::string, plans_made> known_;  // by what the plans follow from
};

estimator_actor::behavior_type estimator(estimator_actor::stateful_pointer<estimator_state> self,
                                         std::shared_ptr<const troupe::cluster> c,
                                         orchestrator_actor orchestrator);

}  // namespace troupe::actors
