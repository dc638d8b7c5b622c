#pragma once

#include <cstdint>
#include <vector>

#include "planners/search/space/floor_table.hpp"

namespace troupe::planners {

/// A number of rows and a cut, and how good its plans may be: a rough score of the best line that
/// the search for cuts has met with it.
struct ranked_cut {
  std::size_t rows_index = 0;
  std::vector<std::uint32_t> firsts;
  double rough = 0;
};

/// Classes by stage for a given cut, with the line's S and u by its floors.
struct cut_line {
  std::vector<std::uint32_t> classes;
  double way_s = 0, step_s = 0;
};

/// The lines of a cut that are the best for some limit on a stage's step and some prices of GPUs:
/// given these, each stage chooses its class for itself. `prices`: directions, in micro-batches a
/// GPU. `tensor`: the degree of all stages; 0: any. `units` is increased by the work.
std::vector<cut_line> lines_of_cut(floor_table& floors, std::size_t rows_index,
                                   const std::vector<std::uint32_t>& firsts,
                                   const std::vector<std::vector<double>>& prices,
                                   std::uint32_t tensor, std::uint64_t& units);

}  // namespace troupe::planners
