#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "actors/client/client.hpp"
#include "actors/control/leases/orchestrator.hpp"
#include "actors/node/node.hpp"
#include "actors/serving/front/completions.hpp"
#include "messages/domain/cluster.hpp"
#include "runtime/host/shared_cluster.hpp"
#include "runtime/virtual/paced_links.hpp"
#include "runtime/world/host.hpp"

// Connects the actors to a host of some world. Only the host knows which world it is.

namespace troupe::actors {

struct controller_actors {
  std::vector<caf::actor> all;  // the frame receiver first
  orchestrator_actor orchestrator;
};

/// Each starts the actors of a host, the frame receiver first, and connects it to the host's
/// transport.
controller_actors start_controller(caf::actor_system& system, const runtime::host& h,
                                   const controller_options& options);
/// `slow_links`: in virtual time, the present slowdown of tensors to a datacenter; null: none.
/// `on_removed`, here and of a front: it was removed from the cluster, and is not needed any more.
std::vector<caf::actor> start_gateway(caf::actor_system& system, const runtime::host& h,
                                      shared_cluster c, bool virtual_time,
                                      runtime::link_slowdown slow_links = {},
                                      std::function<void()> on_removed = {});
std::vector<caf::actor> start_node(caf::actor_system& system, const runtime::host& h,
                                   node_options options);
/// `local` becomes the way to it.
std::vector<caf::actor> start_front(caf::actor_system& system, const runtime::host& h,
                                    shared_cluster c, completions local,
                                    std::function<void()> on_removed = {});
client_actor start_client(caf::actor_system& system, const runtime::host& h);

}  // namespace troupe::actors
