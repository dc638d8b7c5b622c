#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/plan.hpp"

namespace troupe::planners {

/// The order of a plan's groups, by index, in which the running sums of their stages' gradients
/// cost least between datacenters, and of those with the same price the one in which they take
/// least time. Groups whose stages are in the same datacenters stay together, in the order given.
/// Exact for up to six such sets of datacenters, where prices and times between them are no larger
/// than over a third; of more the best chain of nearest neighbours. `gradient_bytes`: by stage.
std::vector<std::size_t> order_of_groups(const cluster& c, std::span<const pipeline_group> groups,
                                         std::span<const std::uint64_t> gradient_bytes);

}  // namespace troupe::planners
