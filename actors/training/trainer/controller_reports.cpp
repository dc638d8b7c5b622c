#include "actors/training/trainer/controller_reports.hpp"

#include <algorithm>

#include "messages/base/invariant.hpp"

namespace troupe::actors {

void controller_reports::write(training_report& r) {
  const auto count = std::min(iterations_.size(), max_iterations);
  r.sequence = ++sequence_;
  r.iterations.assign(iterations_.begin(),
                      iterations_.begin() + static_cast<std::ptrdiff_t>(count));
  r.events = events_;
  TROUPE_INVARIANT(in_flight_.empty() || in_flight_.back().sequence < r.sequence,
                   "reports to the controller are numbered in their order");
  in_flight_.push_back({r.sequence, count, events_.size()});
}

// Reports that are older than the acknowledged one carried a part of what it did, so that they are
// forgotten with it.
bool controller_reports::acknowledge(std::uint64_t sequence) {
  while (!in_flight_.empty() && in_flight_.front().sequence < sequence) in_flight_.pop_front();
  if (in_flight_.empty() || in_flight_.front().sequence != sequence) return false;
  const auto [number, iterations, events] = in_flight_.front();
  TROUPE_INVARIANT(iterations <= iterations_.size() && events <= events_.size(),
                   "the controller acknowledges what was sent to it");
  iterations_.erase(iterations_.begin(),
                    iterations_.begin() + static_cast<std::ptrdiff_t>(iterations));
  events_.erase(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(events));
  in_flight_.clear();  // later ones have the same iterations: they would be counted twice
  return true;
}

}  // namespace troupe::actors
