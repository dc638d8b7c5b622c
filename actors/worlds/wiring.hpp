#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "actors/control/orchestrator.hpp"
#include "actors/gateway/wan_arbiter.hpp"
#include "actors/node/node.hpp"
#include "actors/protocol/protocol.hpp"
#include "messages/cluster.hpp"
#include "planners/core/policy.hpp"
#include "runtime/host/host.hpp"

// Connects the actors to a host of some world. Only the host knows which world that is.

namespace troupe::actors {

struct controller_options {
  std::shared_ptr<const troupe::cluster> cluster;
  std::shared_ptr<const planners::policy> policy;
  bool local = false;                                         // all nodes are this machine
  bool virtual_time = false;                                  // else planning has its own thread
  std::function<void(double us, std::size_t n)> on_decision;  // what each decision cost
  journal_limits limits;
};

struct controller_actors {
  std::vector<caf::actor> all;  // the one that receives frames first
  orchestrator_actor orchestrator;
};

/// Each starts the actors of a host, the one that receives its frames first, and connects its
/// transport to it.
controller_actors start_controller(caf::actor_system& system, const runtime::host& h,
                                   const controller_options& options);
/// `slow_links`: in virtual time, how many times as long tensors for a datacenter take now; null:
/// as long as the cluster says.
std::vector<caf::actor> start_gateway(caf::actor_system& system, const runtime::host& h,
                                      std::shared_ptr<const troupe::cluster> c, bool virtual_time,
                                      link_slowdown slow_links = {});
std::vector<caf::actor> start_node(caf::actor_system& system, const runtime::host& h,
                                   node_options options);
client_actor start_client(caf::actor_system& system, const runtime::host& h);

}  // namespace troupe::actors
