#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planners/crius/crius_search.hpp"
#include "planners/policy/policy.hpp"

// Crius (section 6, Algorithm 1; docs/planners/crius.md) and the variants of sections 8.5 and 8.6.

namespace troupe::planners {

/// Parameters of the policy. Throughput is normalized: a job's samples/s in a Cell over the best
/// that its own number of GPUs reaches on any type.
struct crius_options {
  std::string name = "crius";
  std::uint32_t search_depth = 3;     // rescalings of running jobs in one choice (section 6.1)
  bool adaptivity = true;             // GPU counts other than the job's own; false: crius-na
  bool heterogeneity = true;          // GPU types other than the job's own; false: crius-nh
  bool deadlines = false;             // crius-ddl: admitted jobs meet their deadlines
  bool solver = false;                // crius-solver: an integer program over all jobs' Cells
  double stay_restarts = 10;          // multiple of restart_s for which a changed job is left alone
  double change_cost = 0.01;          // normalized throughput that each change of a job costs
  std::uint64_t max_steps = 300'000;  // for all searches of one decision together
  /// crius-solver's program.
  std::function<cell_assignment(const std::vector<alike_choices>&,
                                const std::vector<std::uint32_t>&)>
      solve = solve_assignment;
};

/// crius, crius-na, crius-nh, crius-ddl, crius-solver; none: another name.
std::optional<crius_options> crius_variant(std::string_view name);
std::unique_ptr<policy> make_crius(const crius_options& options);

/// Seconds until a running job may be rescaled or suspended; 0: now.
double stays_s(const snapshot& s, const crius_options& o, const job_view& running);

}  // namespace troupe::planners
