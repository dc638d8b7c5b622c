#include "studies/solve_log.hpp"

#include <algorithm>
#include <utility>

#include "runtime/host/stopwatch.hpp"

namespace troupe::studies {

namespace {

/// `solve`, each call of which is noted in the log.
template <class Solve>
auto noted(std::shared_ptr<solve_log> log, Solve solve) {
  return [log = std::move(log), solve](const auto&... problem) {
    const runtime::stopwatch watch;
    auto answer = solve(problem...);
    const double ms = watch.us() / 1000;
    log->count += 1;
    log->sum_ms += ms;
    log->max_ms = std::max(log->max_ms, ms);
    log->gap_max = std::max(log->gap_max, answer.gap());
    return answer;
  };
}

}  // namespace

std::function<planners::titan_answer(const planners::titan_problem&, const planners::titan_limits&)>
solver_with(std::shared_ptr<solve_log> log) {
  return noted(std::move(log), planners::solve_titan);
}

std::function<planners::cell_assignment(const std::vector<planners::alike_choices>&,
                                        const std::vector<std::uint32_t>&)>
assignment_solver_with(std::shared_ptr<solve_log> log) {
  return noted(std::move(log), planners::solve_assignment);
}

}  // namespace troupe::studies
