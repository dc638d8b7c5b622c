#pragma once

#include <optional>
#include <string>

#include "cli/cluster/local_cluster.hpp"
#include "runtime/process/cpu_time.hpp"

namespace troupe::cli {

/// The core time of a local cluster's processes together; nothing: the kernel does not count it.
std::optional<runtime::cpu_time> cpu_time_of(const local_cluster& c);

/// A note that the machine was too busy for its timings: processes that had `had` of core time
/// waited longer for a core than they ran on one. Empty: it was not, or that is not known.
std::string busy_text(const std::optional<runtime::cpu_time>& had);

/// A sentence that compares a training's median iterations under two schedules.
std::string schedules_text(double varuna_s, double atlas_s,
                           const std::optional<runtime::cpu_time>& had);

}  // namespace troupe::cli
