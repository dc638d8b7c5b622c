#pragma once

#include <fmt/format.h>

#include "planners/policy/policy.hpp"
#include "runtime/host/log.hpp"

namespace troupe::actors {

/// Logs a decision that took longer than a heartbeat: the controller decides nothing else
/// meanwhile. `took_s` is by the host's clock, which stands still during a decision of a virtual
/// run.
inline void log_if_slow(const planners::policy& p, const planners::snapshot& s, double took_s) {
  const double heartbeat_s = s.cluster.settings.heartbeat_s;
  if (took_s <= heartbeat_s) return;
  runtime::log(runtime::log_level::warn, "scheduler", "a decision took longer than a heartbeat",
               {{"policy", p.name()},
                {"took_s", fmt::format("{:.3g}", took_s)},
                {"heartbeat_s", heartbeat_s},
                {"waiting", s.waiting.size()},
                {"running", s.running.size()}});
}

}  // namespace troupe::actors
