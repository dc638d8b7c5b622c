#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planners/search/space/space_problem.hpp"
#include "planners/search/space/space_times.hpp"

namespace troupe::planners {

/// Equal pipelines of a plan whose micro-batches are still to be dealt.
struct line_count {
  std::vector<space_seat> seats;
  std::uint32_t pipelines = 0;
};

/// The plan of these pipelines in this order, its micro-batches dealt one by one to the pipeline
/// that would end first: no other shares end earlier, as a line's time grows with its number. With
/// equal shares all get the same number. None: they cannot be dealt so, or a line has no room in
/// memory.
std::optional<space_plan> dealt_plan(const space_times& times, std::uint32_t rows,
                                     std::uint32_t microbatches,
                                     const std::vector<std::uint32_t>& firsts,
                                     const std::vector<line_count>& lines, bool own_shares);

}  // namespace troupe::planners
