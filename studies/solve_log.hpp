#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace troupe::studies {

/// Integer programs that a policy solved: real time, and the largest gap of an answer.
struct solve_log {
  std::size_t count = 0;
  double sum_ms = 0, max_ms = 0, gap_max = 0;
};

/// Notes each program in the log: for planners::policy_inputs::around_solve.
std::function<void(const std::function<double()>&)> noted_in(std::shared_ptr<solve_log> log);

}  // namespace troupe::studies
