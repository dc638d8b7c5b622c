#pragma once

#include <algorithm>
#include <vector>

namespace troupe::planners {

/// The event loop of a simulated pipeline, for evaluation, rules and search alike. `event` has its
/// time `at`, in seconds, and `a < b` if a happens later.
template <class event>
class event_queue {
 public:
  void add(const event& e) {
    heap_.push_back(e);
    std::push_heap(heap_.begin(), heap_.end());
  }
  void clear() { heap_.clear(); }

  /// Until no event is left: calls `handle(e, now)` for all events of one instant, which are those
  /// within `tolerance_s` of the earliest, `now`, and then `decide(now)`. So whoever chooses what
  /// goes next (a stage, a hop) sees everything that has arrived by then. Both may add events.
  template <class handler, class decider>
  void run(double tolerance_s, handler handle, decider decide) {
    while (!heap_.empty()) {
      const double now = heap_.front().at;
      while (!heap_.empty() && heap_.front().at <= now + tolerance_s) {
        std::pop_heap(heap_.begin(), heap_.end());
        const event e = heap_.back();
        heap_.pop_back();
        handle(e, now);
      }
      decide(now);
    }
  }

 private:
  std::vector<event> heap_;
};

}  // namespace troupe::planners
