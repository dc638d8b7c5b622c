#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/faults.hpp"
#include "messages/domain/job.hpp"
#include "messages/wire/frame.hpp"
#include "messages/wire/stage.hpp"
#include "messages/wire/work.hpp"
#include "planners/policy/policy.hpp"
#include "studies/prefill_simulation.hpp"

// One training in virtual time: the controller, gateways, nodes, trainer and stages, on devices
// whose times come from the cost model or a profile.

namespace troupe::studies {

struct training_simulation_options {
  std::shared_ptr<const troupe::cluster> cluster;
  job_spec job;
  std::string policy = "troupe";
  std::uint64_t seed = 1;
  fault_plan faults;
  double limit_s = 1e9;  // of virtual time
  /// Called from time to time with the share of the planned time that has passed, from 0 to 1.
  std::function<void(double)> progress{};
  /// virtual_cluster_options::loses.
  std::function<bool(address from, address to, const frame&)> loses;
  /// Prompts for the bubbles that the job lends. The cluster gets fronts, and nodes with decoders.
  std::optional<prefill_study> prefills;
};

struct simulated_training {
  training_report report;
  std::uint64_t fingerprint = 0;
  std::uint64_t frames = 0;              // delivered
  std::vector<gateway_traffic> traffic;  // by datacenter, where it has a price
  double wall_s = 0;
  std::optional<simulated_prefills> prefills;  // if there were any
};

/// Runs one training job through all actors in virtual time, on simulated devices, until it has
/// ended. Fails if the job cannot run, fails, or does not terminate.
expected<simulated_training> simulate_training(training_simulation_options options);
/// Under the caller's own policy; options.policy is ignored.
expected<simulated_training> simulate_training(training_simulation_options options,
                                               std::shared_ptr<const planners::policy> policy);

/// A cluster in which a slot job's costs are exact: one node per stage, one second per slot.
troupe::cluster cluster_of_slots(const job_spec& job);

}  // namespace troupe::studies
