#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "messages/base/duration_counts.hpp"

// A device that a training shares with a guest, which computes while the training waits. The
// training goes first: an operation of the guest begins only if no operation of the training is
// ready, and if it is predicted to end a guard before the next one. Processors interrupt it all
// the same if the training's next one comes early; a GPU would end it first. Times are seconds.

namespace troupe::gpu {

/// A guest's work, in operations. The executor calls it on its own
/// thread; other threads may call what else it has meanwhile.
class guest_work {
 public:
  /// Operations that could begin now, one after another. count 0: there are none.
  struct run {
    std::uint32_t count = 0;
    double each_s = 0;         // predicted
    std::uint32_t prompt = 0;  // which one they are of
  };

  virtual ~guest_work() = default;

  /// Chosen with `room_s` in mind, the time until the guard. Does not block.
  virtual run next(double room_s) = 0;
  /// The first `count` operations of the latest run: executes them, or, of a simulated device, they
  /// have ended.
  virtual void execute(std::uint32_t count) = 0;
  /// How many times longer operations usually take than in the cost model, if that was measured.
  /// Any thread may call it.
  virtual std::optional<double> time_factor() const { return {}; }
};

/// A guest's operations of one prompt, by the executor's clock.
struct guest_interval {
  std::uint32_t prompt = 0;
  double begin_s = 0, end_s = 0;
};

/// The use of a device by its guest, and its cost to the training.
struct executor_counts {
  std::uint64_t guest_steps = 0;
  double guest_s = 0;
  // Operations of the training that found one of the guest's being executed, and how long they
  // waited: for its end, or until it was interrupted.
  std::uint64_t delayed = 0;
  double delay_s = 0, worst_delay_s = 0;
  duration_counts delays{};  // of these operations
  std::vector<guest_interval> intervals{};
  double taken_s = 0;  // when these were taken, by the executor's clock

  void record_delay(double s) {
    ++delayed;
    delay_s += s;
    worst_delay_s = std::max(worst_delay_s, s);
    delays.add(s);
  }

  /// Operations of a prompt; those that follow each other within `gap_s` are one interval.
  void record(std::uint32_t prompt, double begin_s, double end_s, double gap_s) {
    constexpr std::size_t max = 1000;  // later ones are only counted
    if (!intervals.empty() && intervals.back().prompt == prompt &&
        begin_s <= intervals.back().end_s + gap_s)
      intervals.back().end_s = end_s;
    else if (intervals.size() < max)
      intervals.push_back({prompt, begin_s, end_s});
  }
};

/// Belongs to the device, not to the stage that trains on it: stages are replaced.
class device_executor {
 public:
  virtual ~device_executor() = default;

  /// The training waits, and its next operation is predicted in `s`, not before. Holds until then,
  /// or until busy().
  virtual void idle_for(double s) = 0;
  /// The training's next operation is ready. Returns how long it must wait for an operation of the
  /// guest that has begun; 0 where operations are submitted to the executor, and wait by
  /// themselves.
  virtual double busy() = 0;
  virtual void set_guard(double s) = 0;

  /// From now on this guest; null: none. At most one operation of the one before is still
  /// executed.
  virtual void lend(std::shared_ptr<guest_work> to) = 0;
  /// The guest may have a run, which it did not have before.
  virtual void wake() = 0;

  /// Since the last call.
  virtual executor_counts take_counts() = 0;

  /// The guest's time_factor().
  virtual std::optional<double> guest_time_factor() { return {}; }

  /// For the guest to know: it gets no time until this is false again.
  void pause(bool on) { paused_ = on; }
  bool paused() const { return paused_; }

 private:
  std::atomic<bool> paused_ = false;
};

}  // namespace troupe::gpu
