#include "studies/solve_log.hpp"

#include <algorithm>
#include <utility>

#include "runtime/host/stopwatch.hpp"

namespace troupe::studies {

std::function<planners::titan_answer(const planners::titan_problem&, const planners::titan_limits&)>
solver_with(std::shared_ptr<solve_log> log) {
  return [log = std::move(log)](const planners::titan_problem& p,
                                const planners::titan_limits& limits) {
    const runtime::stopwatch watch;
    auto answer = planners::solve_titan(p, limits);
    const double ms = watch.us() / 1000;
    log->count += 1;
    log->sum_ms += ms;
    log->max_ms = std::max(log->max_ms, ms);
    log->gap_max = std::max(log->gap_max, answer.gap());
    return answer;
  };
}

}  // namespace troupe::studies
