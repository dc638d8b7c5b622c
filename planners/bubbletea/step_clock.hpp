#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "planners/bubbletea/window_plan.hpp"

// When a stage's device is needed next, and how cautious its guest must be
// (docs/planners/bubbletea.md).

namespace troupe::planners {

/// Predicts when the next operation of a stage can begin that waits for other stages. A guest may
/// use the device until then; a prediction that is too late delays the training, one that is too
/// early wastes the bubble. Seconds of the stage's clock; single-threaded. Operations
/// are numbered as in stage_timetable::busy: the steps of the order, then the copy of the gradients
/// and the update; iterations are counted from the last barrier.
class step_clock {
 public:
  /// Iterations whose waits are remembered.
  static constexpr std::size_t remembered = 8;

  step_clock() = default;
  explicit step_clock(window_plan plan) : plan_{std::move(plan)}, waits_(plan_.operations) {}

  /// Replaces the plan. Observed waits remain valid if it has the same number of operations.
  void plan(window_plan plan);

  /// The earliest time at which an operation is expected that has waited since `since_s`, when the
  /// one before it ended: after the planned gap between the two, less what the same wait was
  /// shorter than planned in any of the last iterations. `since_s` if nothing is known: there is no
  /// plan, or no iteration has shown how long it waits.
  /// With `leave_out` > 0: after the shortest of these waits but for the `leave_out` smallest. The
  /// plan does not count then, since measured waits are the better predictor of a real device.
  /// `leave_out` is at most the number of waits less one.
  double earliest_s(std::uint64_t iteration, std::size_t operation, double since_s,
                    std::size_t leave_out = 0) const;

  /// The operation has waited `s` seconds, 0 if its input was there.
  void waited(std::uint64_t iteration, std::size_t operation, double s);

 private:
  struct wait {
    std::uint64_t iteration = 0;
    double s = 0;
  };
  window_plan plan_;
  std::vector<std::deque<wait>> waits_;  // by operation, the newest last
};

/// How cautious a guest must be, by the delays that its operations cause. A controller with
/// multiplicative increase and decrease, since neither the length of operations nor the training's
/// tolerance is known in advance. In windows of ten iterations: the guard before a step is doubled
/// if more than `share` of the time was spent in delays, halved (down to 1/32 of its first value)
/// if it was less than a quarter of that, and at four times `share` the guest is paused for good.
///
/// The waits of a real device vary, so that one which reckons with the shortest of them would
/// hardly ever be lent, and a single pause of the operating system spends more than any budget.
/// For such a device (`varies`) more and more of the shortest waits are left out once the guard is
/// at its minimum, as long as there are few delays. Too many delays put all of that back; if they
/// do not end then, the guest is paused: what disturbs the device may end. The next pause is twice
/// as long; each window without too many delays halves it again.
class delay_budget {
 public:
  static constexpr double smallest_guard = 1.0 / 32;  // share of the first
  static constexpr std::uint32_t window = 10;         // iterations
  static constexpr std::size_t max_left_out = 4;      // out of step_clock::remembered
  static constexpr std::uint32_t patience = 3;        // windows with too many delays
  static constexpr std::uint32_t first_pause = 8, longest_pause = 512;  // windows

  delay_budget() = default;
  delay_budget(double guard_s, double share, bool varies = false)
      : first_s_{guard_s}, guard_s_{guard_s}, share_{share}, varies_{varies} {}

  /// An iteration took this long, of which its operations were delayed so long.
  void add_iteration(double took_s, double delay_s);

  double guard_s() const { return guard_s_; }
  bool paused() const { return paused_; }
  /// The number of smallest waits to ignore, for step_clock::earliest_s.
  std::size_t leave_out() const { return left_out_; }

 private:
  void wait();
  void adapt(double budget_s);
  void shrink();
  void grow();
  void on_too_many();

  double first_s_ = 0, guard_s_ = 0, share_ = 0;
  bool varies_ = false;
  std::size_t left_out_ = 0;
  std::uint32_t strikes_ = 0;        // windows with too many delays, one after the other
  double took_s_ = 0, delay_s_ = 0;  // in this window
  std::uint32_t iterations_ = 0;
  bool paused_ = false;
  std::uint32_t pause_ = 0, next_pause_ = first_pause;  // windows
};

}  // namespace troupe::planners
