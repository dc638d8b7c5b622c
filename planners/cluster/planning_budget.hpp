#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "messages/base/reason.hpp"

namespace troupe::planners {

/// For tests: how often this thread has searched for plans, or for a round's decisions.
inline thread_local std::uint64_t searches_made = 0;

/// Limit on the cost of planning one job, so that no job blocks the controller. Counted in units of
/// work, not seconds: the same job gets the same plans everywhere, and a virtual run is
/// reproducible. A real controller adds a time limit, because units do not account for a machine
/// that is overloaded. Not thread-safe: each planning thread has its own.
class planning_budget {
 public:
  /// One unit is roughly the work for one stage or one piece of a model: some 10 ns.
  static constexpr std::uint64_t units_a_plan = 100'000'000;
  /// Budget of one decision of a policy, in the scheduler's own thread.
  static constexpr std::uint64_t units_a_decision = 20'000'000;

  explicit planning_budget(std::uint64_t units = units_a_plan,
                           std::function<bool()> out_of_time = {})
      : units_{units}, left_{units}, out_of_time_{std::move(out_of_time)} {}

  /// Spends units; false if they are exhausted: stop, and keep what was found so far. Once false it
  /// stays false.
  bool spend(std::uint64_t units) {
    if (units > left_ || timed_out()) {
      left_ = 0;
      return false;
    }
    left_ -= units;
    return true;
  }
  /// A budget for a part of the work, of at most what is left, with the same limit of time;
  /// charge() takes what was spent of it.
  planning_budget part(std::uint64_t units) const {
    return planning_budget{std::min(units, left_), out_of_time_};
  }
  void charge(const planning_budget& part) {
    late_ = late_ || part.late_;
    spend(part.units_ - part.left_);
  }
  bool exhausted() const { return left_ == 0; }
  std::uint64_t left() const { return left_; }
  /// The time limit was hit: no conclusion about the job can be drawn from the result.
  bool late() const { return late_; }

  reason none_found() const {
    return {reason::kind::infeasible,
            late_ ? "no plan found within the time limit for planning"
                  : "no plan found within " + std::to_string(units_) + " steps of planning"};
  }

 private:
  // Reading the clock costs more than a unit.
  bool timed_out() {
    if (!out_of_time_ || ++calls_ % 16 != 0) return false;
    late_ = late_ || out_of_time_();
    return late_;
  }

  std::uint64_t units_, left_, calls_ = 0;
  std::function<bool()> out_of_time_;
  bool late_ = false;
};

}  // namespace troupe::planners
