#include "planners/bubbletea/step_clock.hpp"

#include <algorithm>

namespace troupe::planners {

namespace {

constexpr double too_much = 4, too_little = 0.25;  // times the budget
constexpr double min_guard_s = 1e-4;               // that helps at all

}  // namespace

void step_clock::plan(window_plan plan) {
  if (plan.operations != plan_.operations) waits_.assign(plan.operations, {});
  plan_ = std::move(plan);
}

// A stage waits for its neighbours, so that a wait is as long as planned less the time by which
// this stage is late against them. That difference changes slowly: the largest one of the last
// iterations is a cautious forecast of the next. Comparing with the plan's gap of the same
// iteration, not with the raw waits, keeps iterations of different shape (the first after a
// barrier) apart.
double step_clock::earliest_s(std::uint64_t iteration, std::size_t operation, double since_s,
                              std::size_t leave_out) const {
  if (operation >= waits_.size() || waits_[operation].empty() || plan_.shown() == 0) return since_s;
  const auto& waits = waits_[operation];
  if (leave_out > 0) {
    std::vector<double> sorted;
    for (const auto& w : waits) sorted.push_back(w.s);
    const auto at = static_cast<std::ptrdiff_t>(std::min(leave_out, sorted.size() - 1));
    std::ranges::nth_element(sorted, sorted.begin() + at);
    return since_s + sorted[static_cast<std::size_t>(at)];
  }
  double later_s = 0;
  for (const auto& w : waits)
    later_s = std::min(later_s, w.s - plan_.gap_s(w.iteration, operation));
  return since_s + std::max(0.0, plan_.gap_s(iteration, operation) + later_s);
}

void step_clock::waited(std::uint64_t iteration, std::size_t operation, double s) {
  if (operation >= waits_.size()) return;
  auto& all = waits_[operation];
  all.push_back({iteration, std::max(0.0, s)});
  if (all.size() > remembered) all.pop_front();
}

void delay_budget::add_iteration(double took_s, double delay_s) {
  took_s_ += took_s;
  delay_s_ += delay_s;
  if (++iterations_ < window) return;
  const double budget_s = share_ * took_s_;
  if (paused_)
    wait();
  else if (delay_s_ >= too_much * budget_s && delay_s_ > 0)
    on_too_many();
  else
    adapt(budget_s);
  took_s_ = delay_s_ = 0;
  iterations_ = 0;
}

/// A window of a pause is over.
void delay_budget::wait() {
  if (varies_ && --pause_ == 0) paused_ = false;
}

/// Four times the budget in one window. On a simulated device the cause is the plan, which will not
/// improve: paused for good. On a real one it may be a disturbance: all caution comes back first,
/// and only several such windows in a row pause the guest, each time for longer.
void delay_budget::on_too_many() {
  if (!varies_) return void(paused_ = true);
  left_out_ = 0;
  guard_s_ = std::max({2 * guard_s_, first_s_, min_guard_s});
  if (++strikes_ < patience) return;
  strikes_ = 0;
  paused_ = true;
  pause_ = std::exchange(next_pause_, std::min(2 * next_pause_, longest_pause));
}

/// Within four times the budget. The band between a quarter of the budget and the budget changes
/// nothing, so that the guard settles.
void delay_budget::adapt(double budget_s) {
  strikes_ = 0;
  next_pause_ = std::max(first_pause, next_pause_ / 2);
  if (delay_s_ > budget_s)
    grow();
  else if (delay_s_ < too_little * budget_s)
    shrink();
}

/// More caution, in the reverse order of shrink().
void delay_budget::grow() {
  if (left_out_ > 0)
    --left_out_;
  else
    guard_s_ = std::max(2 * guard_s_, min_guard_s);
}

/// Less caution: a shorter guard first, then ignored waits where they vary.
void delay_budget::shrink() {
  const double min_s = smallest_guard * first_s_;
  if (guard_s_ > min_s)
    guard_s_ = std::max(min_s, guard_s_ / 2);
  else if (varies_)
    left_out_ = std::min(left_out_ + 1, max_left_out);
}

}  // namespace troupe::planners
