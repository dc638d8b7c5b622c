#pragma once

#include <algorithm>
#include <cstdint>

#include "messages/base/time.hpp"

namespace troupe::planners {

/// A way to have used a set of stages for the pieces from one on to the end (stage_cut.cpp).
struct cut_label {
  double through = 0;            // S of these stages
  double own = 0;                // the closed form's terms, less S of the whole pipeline
  double links = 0;              // the most that a link is used in an iteration
  double tail = 0;               // left of sums and updates after these stages' backwards
  double sent = 0;               // from the front stage to the next one, on a link for itself
  double span_s = 0, min_s = 0;  // at least, of an iteration: without the tail, with it
  // What cards delay the first micro-batch on its way back to the front stage, and `own` with that:
  // if no stage in front has more load. And what the front stage's card adds at least.
  double delay = 0, delayed_own = 0, max_load = never, next_delay = 0;
  double forward = 0;  // of the front stage
  double lowered = 0;  // by so much, at most, to stand for others that are nearly equal
  // If the first stage has the last one's embedding, too:
  double backwards = 0;  // from the last stage's last backward to the front one's
  double last_gradients = 0, last_sums = 0, last_update = 0, last_tied_bytes = 0;
  std::uint32_t parent = 0, begin = 0;
  std::uint16_t type = 0, last_type = 0, pieces = 0;
  std::uint16_t together = 0;  // stages in front that may share a node
};

/// Which of two labels is better that begin with the same piece.
struct label_order {
  bool lower_bound = false, tied = false;  // as in cut_problem
  bool equal_sends = false;                // all sends of all stages
  double slack_s = 0;  // by so much a label may be worse and still stand for another

  /// Is whatever precedes `a` no longer than the same before `b`?
  bool better(const cut_label& a, const cut_label& b) const {
    const double slack = slack_s - a.lowered;
    return a.through <= b.through && a.through + a.own <= b.through + b.own + slack &&
           a.tail <= b.tail + slack && a.links <= std::max(b.links, b.span_s) && a.sent <= b.sent &&
           a.together <= b.together &&
           (!lower_bound ||
            (a.through + a.delayed_own <= b.through + b.delayed_own + slack &&
             a.through + delay(a, b) <= b.through + b.delay + slack && a.max_load <= b.max_load)) &&
           (!tied || (a.backwards >= b.backwards && a.last_gradients <= b.last_gradients &&
                      a.last_sums <= b.last_sums && a.last_update <= b.last_update &&
                      a.last_tied_bytes <= b.last_tied_bytes));
  }
  /// Lets `a`, which is better but for the slack, promise no less than `b`: from then on it is a
  /// bound for both.
  void lower(cut_label& a, const cut_label& b) const {
    const double more = b.through - a.through;
    const auto by = [&](double& x, double excess) {
      if (excess <= 0) return;
      x -= excess;
      a.lowered = std::max(a.lowered, excess);
    };
    const double delay_excess = delay(a, b) - b.delay - more;
    by(a.own, a.own - b.own - more);
    by(a.delayed_own, a.delayed_own - b.delayed_own - more);
    by(a.delay, delay_excess);
    by(a.tail, a.tail - b.tail);
    a.min_s = std::min(a.min_s, b.min_s);
    a.span_s = std::min(a.span_s, b.span_s);
  }

 private:
  /// Of `a`, so that no stage in front makes it more than that of `b`.
  double delay(const cut_label& a, const cut_label& b) const {
    return a.delay +
           (equal_sends ? a.next_delay - b.next_delay : std::max(0.0, b.forward - a.forward));
  }
};

}  // namespace troupe::planners
