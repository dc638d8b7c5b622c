#pragma once

#include "actors/control/interfaces.hpp"

namespace troupe::actors {

/// The other actors of the controller, as the orchestrator's classes see them. They begin after the
/// orchestrator: until then, and in tests of the orchestrator alone, their handles are null.
struct controller_links {
  orchestrator_actor::pointer self = nullptr;
  scheduler_actor scheduler;
  status_actor status;

  void send_progress(const job_progress& p) const {
    if (scheduler) self->send(scheduler, p);
    if (status) self->send(status, p);
  }
};

}  // namespace troupe::actors
