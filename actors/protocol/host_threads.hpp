#pragma once

#include <caf/actor_system_config.hpp>
#include <caf/atom.hpp>

namespace troupe::actors {

/// The threads of a real host's actors. CAF's policy "sharing" waits without polling (a host is
/// mostly idle) and on a mutex, which thread sanitizers understand.
struct host_threads : caf::actor_system_config {
  host_threads() {
    set("scheduler.max-threads", std::size_t{2});
    set("scheduler.policy", caf::atom("sharing"));
  }
};

}  // namespace troupe::actors
