#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "planners/titan/titan_problem.hpp"

namespace troupe::studies {

/// Programs that a policy of TITAN solved: real time, and the largest gap of an answer.
struct solve_log {
  std::size_t count = 0;
  double sum_ms = 0, max_ms = 0, gap_max = 0;
};

/// planners::solve_titan, which notes each program in the log: for titan_options::solve.
std::function<planners::titan_answer(const planners::titan_problem&, const planners::titan_limits&)>
solver_with(std::shared_ptr<solve_log> log);

}  // namespace troupe::studies
