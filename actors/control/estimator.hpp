#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "actors/control/interfaces.hpp"
#include "actors/protocol/actor_state.hpp"
#include "planners/policy/policy.hpp"
#include "runtime/host/clock.hpp"
#include "runtime/host/shared_cluster.hpp"

namespace troupe::actors {

struct estimator_options {
  shared_cluster cluster;
  std::shared_ptr<const planners::policy> policy;
  /// Clock for the time limit in addition to the work budget; null: no time limit (virtual time).
  std::shared_ptr<const runtime::clock> clock;
  double time_limit_s = 5;
};

/// Lists the plans of a job, using the cost model or the profiles of the cluster or the job.
/// Identical jobs share one list. Nothing waits for it: on a real controller it has its own thread;
/// jobs that are quick to plan go first, and each job has a budget.
class estimator_state {
 public:
  using interface = estimator_actor;
  static constexpr const char* name = "estimator";

  void start(estimator_actor::pointer self, estimator_options options) {
    self_ = self;
    options_ = std::move(options);
  }
  void on(const plans_request& w);
  void on(const tick&);

 private:
  plans_reply plans_for(const plans_request& w);

  estimator_actor::pointer self_ = nullptr;
  estimator_options options_;
  std::map<std::string, plans_reply> known_;  // by key_of
  // Requested plans, by cost, then by order of arrival.
  std::map<std::pair<std::uint64_t, std::uint64_t>, plans_request> queue_;
  std::uint64_t arrivals_ = 0;
};

}  // namespace troupe::actors
