#include "cli/cluster/busy_machine.hpp"

#include <fmt/format.h>

#include "cli/output/human.hpp"

namespace troupe::cli {

std::optional<runtime::cpu_time> cpu_time_of(const local_cluster& c) {
  runtime::cpu_time all;
  for (const auto& name : c.names()) {
    const auto one = runtime::cpu_time_of(c.id(name));
    if (!one) return {};
    all += *one;
  }
  return all;
}

std::string busy_text(const std::optional<runtime::cpu_time>& had) {
  // From /proc/PID/schedstat: time in the run queue against time on a core. Above 1 the timings are
  // the scheduler's rather than the schedules'.
  if (!had || had->ran_s <= 0 || had->waited_s <= had->ran_s) return {};
  return fmt::format(
      "This machine was too busy for these timings: the processes waited {:.1f} s for a core for "
      "each second on one.",
      had->waited_s / had->ran_s);
}

std::string schedules_text(double varuna_s, double atlas_s,
                           const std::optional<runtime::cpu_time>& had) {
  const auto medians = fmt::format("Median iteration: {} under varuna, {} under atlas",
                                   duration_text(varuna_s), duration_text(atlas_s));
  if (const auto busy = busy_text(had); !busy.empty())
    return fmt::format("{}. {} Repeat it on an idle one to compare the schedules.", medians, busy);
  if (atlas_s > varuna_s)
    return fmt::format(
        "{}: slower, so this machine had other work, or its cores are too few for both pipelines. "
        "Repeat it on an idle one to compare the schedules.",
        medians);
  return fmt::format("{} ({:.2f}x speedup).", medians, varuna_s / atlas_s);
}

}  // namespace troupe::cli
