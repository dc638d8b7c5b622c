#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "messages/base/time.hpp"

// Labels of the dynamic program over orders and cuts (docs/planners/plan_search.md, "The order and
// the cut"). S is a micro-batch's way through the pipeline and back, Y the part of it from a stage
// on; the numbers (1) to (5) are the page's terms. All times are seconds of one iteration.

namespace troupe::planners {

/// One way to use a part of the set for the last pieces of the model, from `begin` on. Its front
/// stage is the one that was added last; the stages that are still to come are in front of it.
struct cut_label {
  double through = 0;  // S of these stages, the sends among them both ways included: Y of the front
  double own = 0;      // the largest of the terms (1) to (4) so far, less S of the whole pipeline
  double links = 0;    // use of the busiest link
  double tail = 0;     // sums and updates that remain when the front stage's backwards have ended
  // When the front stage knows that all have their sums, after its backwards have ended (agrees):
  double word = 0;
  double sent = 0;  // one send from the front stage to the next, on an otherwise idle link
  // Lower bounds of any completed iteration: without its tail, and with it.
  double span_s = 0, min_s = 0;
  // Term (5): how much cards delay the first micro-batch on its way back to the front stage, and
  // `own` with that delay. Valid while no stage in front has more than `max_load` per micro-batch.
  // `next_delay`: the least that the front stage's own card will add.
  double delay = 0, delayed_own = 0, max_load = never, next_delay = 0;
  double forward = 0;  // of the front stage
  double lowered = 0;  // the most that a value was reduced to stand for nearly equal labels
  // Only if the first stage has the last one's embedding, too (tied):
  double backwards = 0;  // from the last stage's last backward to the front one's
  double last_gradients = 0, last_sums = 0, last_update = 0, last_tied_bytes = 0;
  std::uint32_t parent = 0, begin = 0;  // index of the label behind; first piece of the front stage
  std::uint16_t type = 0, last_type = 0, pieces = 0;  // front, last, front stage
  std::uint16_t together = 0;                         // stages on the front stage's node so far
};

/// Dominance among labels of one part of the set, with the same first piece and front type.
struct label_order {
  bool lower_bound = false, tied = false, agrees = false;  // as in cut_problem
  bool equal_sends = false;  // every send of every stage takes equally long
  double slack_s = 0;        // how much worse a label may be and still stand for another; 0: exact

  /// Whether every completion of `a` takes no longer than the same completion of `b`, so that `b`
  /// can be dropped. The stages in front add the same to both labels, so it suffices that `a` is no
  /// larger in each value that theirs are added to or compared with: S itself (rounds grow with
  /// it), S with each kind of term beyond it, the tail, the front stage's send. Link use counts
  /// only above what `b` takes in any case.
  bool better(const cut_label& a, const cut_label& b) const {
    const double slack = slack_s - a.lowered;
    return a.through <= b.through && a.through + a.own <= b.through + b.own + slack &&
           a.tail <= b.tail + slack && a.links <= std::max(b.links, b.span_s) && a.sent <= b.sent &&
           a.together <= b.together && (!agrees || a.word <= b.word + slack) &&
           (!lower_bound ||
            (a.through + a.delayed_own <= b.through + b.delayed_own + slack &&
             a.through + delay(a, b) <= b.through + b.delay + slack && a.max_load <= b.max_load)) &&
           (!tied || (a.backwards >= b.backwards && a.last_gradients <= b.last_gradients &&
                      a.last_sums <= b.last_sums && a.last_update <= b.last_update &&
                      a.last_tied_bytes <= b.last_tied_bytes));
  }
  /// Reduces `a`, which is better but for the slack, to what `b` promises. From then on `a` is a
  /// lower bound for both and no longer the value of one cut.
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
    by(a.word, a.word - b.word);
    a.min_s = std::min(a.min_s, b.min_s);
    a.span_s = std::min(a.span_s, b.span_s);
  }

 private:
  /// The delay of `a` once a stage is in front of it, relative to that of `b`: their front stages
  /// may differ in what the next card adds.
  double delay(const cut_label& a, const cut_label& b) const {
    return a.delay +
           (equal_sends ? a.next_delay - b.next_delay : std::max(0.0, b.forward - a.forward));
  }
};

/// Keeps the `max` labels with the smallest bounds: the search is then no longer exact.
inline void keep_smallest_bounds(std::vector<cut_label>& all, std::size_t max) {
  if (all.size() <= max) return;
  std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(max), {},
                           [](const cut_label& l) {
                             return std::pair{l.min_s, l.begin};
                           });
  all.resize(max);
}

/// Lower bound of the tail from the stages in front. The longest tail is at least their mean: the
/// mean of their sums less the backwards and sends that hide them, where a backward takes at most
/// own_s / (m - 1).
struct mean_sums {
  double shown_s = 0, hidden = 0;

  double tail_s(double own_s) const { return std::max(0.0, shown_s - hidden * own_s); }
};

}  // namespace troupe::planners
