#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "planners/policy/policy.hpp"

namespace troupe::planners {

/// Crius (docs/planners/crius.md) and its variants.
struct crius_options {
  std::string name = "crius";
  std::uint32_t search_depth = 3;     // rescalings of running jobs in one scheduling choice
  bool adaptivity = true;             // counts other than the job's own; crius-na: not
  bool heterogeneity = true;          // types other than the job's own; crius-nh: not
  bool deadlines = false;             // crius-ddl: what is admitted meets its deadline
  bool solver = false;                // crius-solver: an integer program over all jobs' Cells
  double stay_restarts = 10;          // so many times restart_s a job stays where it was started
  double change_cost = 0.01;          // of normalised throughput, for each job that changes
  std::uint64_t max_steps = 300'000;  // of all searches of one decision together
};

/// crius, crius-na, crius-nh, crius-ddl, crius-solver; none: another name.
std::optional<crius_options> crius_variant(std::string_view name);
std::unique_ptr<policy> make_crius(const crius_options& options);

/// Seconds until a running job may be rescaled or suspended; 0: it may be.
double stays_s(const snapshot& s, const crius_options& o, const job_view& running);

}  // namespace troupe::planners
