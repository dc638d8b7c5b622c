#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// Watches when a stage uses its device and when it waits. The stage decides nothing by it except
/// how long its next operation is delayed. Called by the stage's actor.
///
/// Operations are numbered as in stage_timetable::busy: the steps of the order, then the copy of
/// the gradients and the update. `iteration` is counted from the last barrier of the training.
class stage_observer {
 public:
  virtual ~stage_observer() = default;

  /// The stage has a plan, which is new: `s` is its setup with the order and the planned times.
  virtual void on_plan(const stage_setup&) {}
  /// The planned times have changed.
  virtual void on_times(const stage_setup&) {}
  /// The device is idle until the input of this operation arrives. May be repeated.
  virtual void on_idle(std::uint64_t, std::size_t) {}
  /// The device is needed; no number: for an operation that not every iteration has. Returns how
  /// long it must wait.
  virtual double on_busy(std::uint64_t, std::optional<std::size_t>) { return 0; }
  /// The iteration after this many begins its first step.
  virtual void on_iteration_begun(std::uint64_t) {}
  /// The iteration is over, at the report's begin_s to end_s: adds to its report.
  virtual void on_iteration_ended(stage_report&) {}
};

}  // namespace troupe::actors
