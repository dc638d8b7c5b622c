#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "planners/crius/crius_options.hpp"
#include "planners/policy/policy.hpp"

// Crius (section 6, Algorithm 1; docs/planners/crius.md) and the variants of sections 8.5 and 8.6.

namespace troupe::planners {

/// crius, crius-na, crius-nh, crius-ddl, crius-solver; none: another name.
std::optional<crius_options> crius_variant(std::string_view name);
std::unique_ptr<policy> make_crius(const crius_options& options);

}  // namespace troupe::planners
