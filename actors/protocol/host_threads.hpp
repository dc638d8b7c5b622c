#pragma once

#include <caf/actor_system_config.hpp>
#include <caf/atom.hpp>

namespace troupe::actors {

/// The threads on which a real host's actors run. CAF's policy "sharing" waits without polling (a
/// host is idle for most of its life) and on a mutex, which a thread sanitizer understands.
struct host_threads : caf::actor_system_config {
  host_threads() {
    set("scheduler.max-threads", std::size_t{2});
    set("scheduler.policy", caf::atom("sharing"));
  }
};

}  // namespace troupe::actors
