#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "planners/crius/crius_search.hpp"
#include "planners/titan/titan_problem.hpp"

namespace troupe::studies {

/// Integer programs that a policy solved: real time, and the largest gap of an answer.
struct solve_log {
  std::size_t count = 0;
  double sum_ms = 0, max_ms = 0, gap_max = 0;
};

/// planners::solve_titan, which notes each program in the log: for titan_options::solve.
std::function<planners::titan_answer(const planners::titan_problem&, const planners::titan_limits&)>
solver_with(std::shared_ptr<solve_log> log);

/// The same of planners::solve_assignment, for crius_options::solve.
std::function<planners::cell_assignment(const std::vector<planners::alike_choices>&,
                                        const std::vector<std::uint32_t>&)>
assignment_solver_with(std::shared_ptr<solve_log> log);

}  // namespace troupe::studies
