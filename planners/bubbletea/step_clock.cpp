#include "planners/bubbletea/step_clock.hpp"

#include <algorithm>
#include <utility>

namespace troupe::planners {

namespace {

constexpr double too_much = 4, too_little = 0.25;  // times the budget
constexpr double least_guard_s = 1e-4;             // that helps at all
constexpr double smallest_share = 0.125;           // of the first guard

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

double step_clock::earliest_s(std::size_t operation, double since_s, std::size_t leave_out) const {
  if (operation >= waits_.size() || waits_[operation].empty()) return since_s;
  const auto& waits = waits_[operation];
  if (leave_out == 0)
    return since_s + std::min(planned_gap_s(operation), *std::ranges::min_element(waits));
  std::vector<double> sorted{waits.begin(), waits.end()};
  const auto at = static_cast<std::ptrdiff_t>(std::min(leave_out, sorted.size() - 1));
  std::ranges::nth_element(sorted, sorted.begin() + at);
  return since_s + sorted[static_cast<std::size_t>(at)];
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
  const bool too_many = delay_s_ >= too_much * budget_s && delay_s_ > 0;
  strikes_ = too_many ? strikes_ + 1 : 0;
  if (too_many)
    on_too_many();
  else if (delay_s_ > budget_s)
    grow();
  else if (delay_s_ < too_little * budget_s)
    shrink();
  took_s_ = delay_s_ = 0;
  iterations_ = 0;
}

void delay_budget::on_too_many() {
  if (!varies_ || strikes_ >= patience) return void(paused_ = true);
  left_out_ = 0;
  guard_s_ = std::max({2 * guard_s_, first_s_, least_guard_s});
}

/// More caution: first what was given up last.
void delay_budget::grow() {
  if (left_out_ > 0)
    --left_out_;
  else
    guard_s_ = std::max(2 * guard_s_, least_guard_s);
}

void delay_budget::shrink() {
  const double least_s = varies_ ? smallest_share * first_s_ : first_s_;
  if (guard_s_ > least_s)
    guard_s_ = std::max(least_s, guard_s_ / 2);
  else if (varies_)
    left_out_ = std::min(left_out_ + 1, most_left_out);
}

}  // namespace troupe::planners
