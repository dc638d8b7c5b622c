#pragma once

#include <optional>
#include <string>

#include "cli/output/output.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"

namespace troupe::cli {

/// `troupe plan --space NAME`.
struct space_request {
  const cluster& c;
  const job_spec& job;
  std::string space;
  /// For the bound, in steps of planning that take about so long; none: little more than a second.
  std::optional<double> limit_s{};
};

/// The best plan of a space on the idle cluster, and a bound on how far from the best it may be.
int plan_in_space(const output& out, const space_request& r);

}  // namespace troupe::cli
