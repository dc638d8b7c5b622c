#include "planners/bubbletea/step_clock.hpp"

#include <algorithm>
#include <utility>

namespace troupe::planners {

namespace {

constexpr double too_much = 4, too_little = 0.25;  // times the budget
constexpr double least_guard_s = 1e-4;             // that helps at all

}  // namespace

step_clock::step_clock(stage_timetable times)
    : times_{std::move(times)}, waits_(times_.busy.size()) {}

void step_clock::plan(stage_timetable times) {
  if (times.busy.size() != times_.busy.size()) waits_.assign(times.busy.size(), {});
  times_ = std::move(times);
}

/// Between the end of the operation before and this one's begin. The first follows the last one of
/// the iteration before.
double step_clock::planned_gap_s(std::size_t operation) const {
  const auto& busy = times_.busy;
  const double before_s =
      operation > 0 ? busy[operation - 1].end_s : busy.back().end_s - times_.iteration_s;
  return std::max(0.0, busy[operation].begin_s - before_s);
}

double step_clock::earliest_s(std::size_t operation, double since_s) const {
  if (operation >= waits_.size() || waits_[operation].empty()) return since_s;
  return since_s + std::min(planned_gap_s(operation), *std::ranges::min_element(waits_[operation]));
}

void step_clock::waited(std::size_t operation, double s) {
  if (operation >= waits_.size()) return;
  auto& all = waits_[operation];
  all.push_back(std::max(0.0, s));
  if (all.size() > remembered) all.pop_front();
}

void delay_budget::add_iteration(double took_s, double delay_s) {
  took_s_ += took_s;
  delay_s_ += delay_s;
  if (++iterations_ < window) return;
  const double budget_s = share_ * took_s_;
  if (delay_s_ >= too_much * budget_s && delay_s_ > 0)
    paused_ = true;
  else if (delay_s_ > budget_s)
    guard_s_ = std::max(2 * guard_s_, least_guard_s);
  else if (delay_s_ < too_little * budget_s)
    guard_s_ = std::max(first_s_, guard_s_ / 2);
  took_s_ = delay_s_ = 0;
  iterations_ = 0;
}

}  // namespace troupe::planners
