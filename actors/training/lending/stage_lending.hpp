#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "actors/protocol/messenger.hpp"
#include "gpu/device/device_executor.hpp"
#include "messages/wire/stage.hpp"
#include "planners/bubbletea/step_clock.hpp"

namespace troupe::actors {

/// Lends a stage's device to its guest while the stage waits. The device's executor learns the idle
/// times, which are predicted by the plan and by the waits of earlier iterations. The delays that
/// the guest causes are measured, and make the lending more cautious (docs/planners/bubbletea.md).
///
/// It watches when the stage uses its device and when it waits. The stage decides nothing by it
/// except how long its next operation is delayed, and its phases do not know of guests. Without an
/// executor there is no guest, and every call is without effect.
///
/// Operations are numbered as in stage_timetable::busy: the steps of the order, then the copy of
/// the gradients and the update. `iteration` is counted from the last barrier of the training.
class stage_lending {
 public:
  struct options {
    messenger host;
    address gateway = 0;  // of this datacenter, which learns when iterations begin
    std::shared_ptr<gpu::device_executor> executor;
    bool times_vary = false;  // as those of a real device do
  };
  stage_lending() = default;
  explicit stage_lending(options o) : o_{std::move(o)} {}

  /// The stage has a plan, which is new: `s` is its setup with the order and the planned times.
  void on_plan(const stage_setup& s);
  /// The planned times have changed.
  void on_times(const stage_setup& s);
  /// The device is idle until the input of this operation arrives. May be repeated.
  void on_idle(std::uint64_t iteration, std::size_t operation);
  /// The device is needed; no number: for an operation that not every iteration has. Returns how
  /// long it must wait.
  double on_busy(std::uint64_t iteration, std::optional<std::size_t> operation);
  /// The iteration after this many begins its first step.
  void on_iteration_begun(std::uint64_t iteration);
  /// The iteration is over, at the report's begin_s to end_s: adds to its report.
  void on_iteration_ended(stage_report& r);

 private:
  void record_prefills(stage_report& r, const gpu::executor_counts& c) const;

  options o_;
  const stage_setup* setup_ = nullptr;  // of the latest plan; the stage's own
  // Also of a device that the guest does not use at the moment: its idle time is reported.
  std::optional<double> lent_since_s_;  // none: the device is busy
  double idle_s_ = 0;                   // of this iteration, while lent
  bool knows_wait_ = false;             // an operation has begun since the plan was made
  planners::step_clock clock_;
  planners::delay_budget budget_;
};

}  // namespace troupe::actors
