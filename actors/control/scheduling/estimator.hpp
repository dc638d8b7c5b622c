#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "actors/control/interfaces/controller_options.hpp"
#include "actors/control/interfaces/interfaces.hpp"
#include "actors/protocol/actor_state.hpp"
#include "runtime/world/host.hpp"

namespace troupe::actors {

/// Lists the plans of a job, using the cost model or the profiles of the cluster or the job.
/// Identical jobs share one list. Nothing waits for it: on a real controller it has its own thread;
/// jobs that are quick to plan go first, and each job has a budget.
class estimator_state {
 public:
  using interface = estimator_actor;
  static constexpr const char* actor_name = "estimator";

  void start(estimator_actor::pointer self, const runtime::host& h, controller_options options) {
    self_ = self;
    clock_ = h.clock;
    options_ = std::move(options);
  }
  void on(const plans_request& w);
  void on(const tick&);

 private:
  plans_reply plans_for(const plans_request& w);

  estimator_actor::pointer self_ = nullptr;
  std::shared_ptr<const runtime::clock> clock_;
  controller_options options_;
  std::map<std::string, plans_reply> known_;  // by key_of
  // Requested plans, by cost, then by order of arrival.
  std::map<std::pair<std::uint64_t, std::uint64_t>, plans_request> queue_;
  std::uint64_t arrivals_ = 0;
};

}  // namespace troupe::actors
