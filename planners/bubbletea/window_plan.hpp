#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "messages/wire/prefill.hpp"
#include "planners/bubbletea/bubbles.hpp"

namespace troupe::planners {

// A window of a training is the iterations from one barrier to the next (every `replan_every`
// iterations all stages wait for the trainer). Within it pipelines run on without waiting, so that
// its first iterations differ from the later ones, which repeat, and the last one differs again.

/// When a stage's device computes in the iterations from one barrier of its training to the next:
/// the times of the first ones, of which the others follow (messages/wire/prefill.hpp, busy_time).
/// Seconds from where the first stage's first step after the barrier begins.
struct window_plan {
  std::vector<busy_time> busy;  // by iteration, then operation
  std::size_t operations = 0;   // per iteration
  double iteration_s = 0;
  std::uint64_t window = 0;  // iterations; 0: there are no barriers
  double barrier_s = 0;      // this stage's wait before its first operation after a barrier

  std::size_t shown() const { return operations > 0 ? busy.size() / operations : 0; }

  /// The position in `busy` of an operation of an iteration, counted from the barrier, and how much
  /// later it is than there. Precondition: operation < operations, and shown() > 0.
  std::pair<std::size_t, double> find(std::uint64_t iteration, std::size_t operation) const {
    const std::uint64_t n = shown();
    const bool last = window > 0 && iteration + 1 == window;
    const auto like =
        last ? std::min(iteration, n - 1) : std::min<std::uint64_t>(iteration, n > 1 ? n - 2 : 0);
    return {like * operations + operation, static_cast<double>(iteration - like) * iteration_s};
  }
  busy_time at(std::uint64_t iteration, std::size_t operation) const {
    const auto [i, later_s] = find(iteration, operation);
    return {busy[i].begin_s + later_s, busy[i].end_s + later_s};
  }

  /// Between the end of the operation before and this one's begin, at least 0.
  double gap_s(std::uint64_t iteration, std::size_t operation) const {
    const auto next = at(iteration, operation);
    double before_s = next.begin_s;
    if (operation > 0)
      before_s = at(iteration, operation - 1).end_s;
    else if (iteration > 0)
      before_s = at(iteration - 1, operations - 1).end_s;
    else if (window > 0)
      return barrier_s;
    else
      before_s = at(0, operations - 1).end_s - iteration_s;
    return std::max(0.0, next.begin_s - before_s);
  }
};

/// When a stage that lends its bubbles is busy, until that is repeated after repeated_after_s():
/// from barrier to barrier, or in one iteration of very many without one. Precondition: the offer
/// shows whole iterations.
idle_windows repeated_busy_times(const bubble_offer& o, const stage_busy_times& s);
double repeated_after_s(const bubble_offer& o);
/// Where the first step of an iteration of the job (counted from 0) begins in those times.
double first_step_s(const bubble_offer& o, const idle_windows& busy, std::uint64_t iteration);

}  // namespace troupe::planners
