#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "messages/prefill.hpp"

// When a stage's device is needed next, and how cautious its guest must be
// (docs/planners/bubbletea.md).

namespace troupe::planners {

/// Predicts when the next operation of a stage can begin that waits for other stages. Operations
/// are numbered as in stage_timetable::busy: the steps of the order, then the copy of the gradients
/// and the update.
class step_clock {
 public:
  /// Iterations whose waits are remembered.
  static constexpr std::size_t remembered = 8;

  step_clock() = default;
  explicit step_clock(stage_timetable times);

  /// The plan has other times; what is known of waits remains, if it has as many operations.
  void plan(stage_timetable times);

  /// The earliest time at which an operation is expected that has waited since `since_s`, when the
  /// one before it ended: the planned gap between the two after that, or the smallest wait of the
  /// last iterations, whichever is earlier. `since_s` if nothing is known: there is no plan, or no
  /// iteration has shown how long it waits.
  double earliest_s(std::size_t operation, double since_s) const;

  /// It has waited that long, 0 if its input was there.
  void waited(std::size_t operation, double s);

 private:
  double planned_gap_s(std::size_t operation) const;

  stage_timetable times_;
  std::vector<std::deque<double>> waits_;  // by operation, the newest last
};

/// How long before a step a guest's operations must end, by the delays that they cause. In windows
/// of ten iterations: the guard is doubled if more than `share` of the time was spent in delays,
/// halved (but not below its first value) if it was less than a quarter of that, and at four times
/// `share` the guest is paused for good.
class delay_budget {
 public:
  static constexpr std::uint32_t window = 10;  // iterations

  delay_budget() = default;
  delay_budget(double guard_s, double share)
      : first_s_{guard_s}, guard_s_{guard_s}, share_{share} {}

  /// An iteration took this long, of which its operations were delayed so long.
  void add_iteration(double took_s, double delay_s);

  double guard_s() const { return guard_s_; }
  bool paused() const { return paused_; }

 private:
  double first_s_ = 0, guard_s_ = 0, share_ = 0;
  double took_s_ = 0, delay_s_ = 0;  // of this window
  std::uint32_t iterations_ = 0;
  bool paused_ = false;
};

}  // namespace troupe::planners
