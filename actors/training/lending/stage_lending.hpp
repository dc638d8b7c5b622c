#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "actors/protocol/messenger.hpp"
#include "actors/training/lending/stage_observer.hpp"
#include "gpu/device/device_executor.hpp"
#include "planners/bubbletea/step_clock.hpp"

namespace troupe::actors {

/// Lends a stage's device to its guest while the stage waits. The device's executor learns the idle
/// times, which are predicted by the plan and by the waits of earlier iterations. The delays that
/// the guest causes are measured, and make the lending more cautious (docs/planners/bubbletea.md).
///
/// It observes the stage and is no part of it: a stage without a guest has none, and its phases do
/// not know of guests.
class stage_lending final : public stage_observer {
 public:
  struct options {
    messenger host;
    address gateway = 0;  // of this datacenter, which learns when iterations begin
    std::shared_ptr<gpu::device_executor> executor;
    bool times_vary = false;  // as those of a real device do
  };
  explicit stage_lending(options o) : o_{std::move(o)} {}

  void on_plan(const stage_setup& s) override;
  void on_times(const stage_setup& s) override;
  void on_idle(std::uint64_t iteration, std::size_t operation) override;
  double on_busy(std::uint64_t iteration, std::optional<std::size_t> operation) override;
  void on_iteration_begun(std::uint64_t iteration) override;
  void on_iteration_ended(stage_report& r) override;

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
