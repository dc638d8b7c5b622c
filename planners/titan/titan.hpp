#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "planners/policy/policy.hpp"
#include "planners/titan/titan_options.hpp"

// TITAN (Gao et al., SoCC 2022; docs/planners/titan.md): whenever a job arrives or ends, an integer
// program gives the idle GPUs to waiting jobs, or to unions of them, so that the progress of all
// together is largest. What runs is never touched.

namespace troupe::planners {

std::unique_ptr<policy> make_titan(const titan_options& options);
/// The options of titan, titan-no-merger or titan-no-switch; none: it is another name.
std::optional<titan_options> titan_variant(std::string_view name);

/// Those of one of these policies, as it is made; none: it is another policy.
std::optional<titan_options> titan_options_of(const policy& p);

}  // namespace troupe::planners
