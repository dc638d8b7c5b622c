#pragma once

#include <algorithm>
#include <vector>

namespace troupe::planners {

/// The event loop of a simulated pipeline, shared by evaluation, rules and search
/// (docs/planners/pipelines.md). `event` has its time `at`, in the unit of the costs, and `a < b`
/// if a happens later: the heap then has the earliest in front. O(log n) per event.
template <class event>
class event_queue {
 public:
  void add(const event& e) {
    heap_.push_back(e);
    std::push_heap(heap_.begin(), heap_.end());
  }
  void clear() { heap_.clear(); }

  /// Until no event is left: calls `handle(e, now)` for all events of one instant, those within
  /// `tolerance_s` of the earliest, `now`, and then `decide(now)`, which chooses what begins.
  /// In two steps, so that a choice sees everything that has arrived by then and does not depend on
  /// the order of simultaneous events. Both may add events.
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
