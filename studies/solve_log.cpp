#include "studies/solve_log.hpp"

#include <algorithm>
#include <utility>

#include "runtime/host/stopwatch.hpp"

namespace troupe::studies {

std::function<void(const std::function<double()>&)> noted_in(std::shared_ptr<solve_log> log) {
  return [log = std::move(log)](const std::function<double()>& solve) {
    const runtime::stopwatch watch;
    const double gap = solve();
    const double ms = watch.us() / 1000;
    log->count += 1;
    log->sum_ms += ms;
    log->max_ms = std::max(log->max_ms, ms);
    log->gap_max = std::max(log->gap_max, gap);
  };
}

}  // namespace troupe::studies
