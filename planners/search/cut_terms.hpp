#pragma once

#include <algorithm>
#include <cstdint>

#include "planners/schedule/schedule.hpp"
#include "planners/schedule/trips.hpp"
#include "planners/search/cut_label.hpp"
#include "planners/search/cut_problem.hpp"

// The closed form of 1F1B stage by stage, for the search over orders and cuts. Letters and numbers
// of terms are those of docs/planners/plan_search.md: m micro-batches; f, r, b a stage's forward,
// recompute and backward; S a micro-batch's way through the pipeline and back; Y the part of S from
// a stage on; w = `behind` + 1 micro-batches that a stage with `behind` stages behind it may hold
// in flight. plan_time.cpp has the same terms for a complete plan.

namespace troupe::planners {

/// The stages that are still to come, in front, when a part of the set is used.
struct stages_ahead {
  std::uint32_t stages = 0;
  double through_s = never, forward_s = never, backward_s = never;  // least of any type, s/FLOP
  double rate = 0;               // of all of them together (iteration_bound::rate)
  double sums_s = never;         // least s per byte of gradients
  std::uint32_t max_pieces = 0;  // that they can have within the limit; the head counts as one
};

/// Lower bounds of an iteration: without and with what follows its last backwards.
struct min_times {
  double span, with_tail;
};

/// The terms of single stages of one problem. All times are seconds of one iteration.
class cut_terms {
 public:
  explicit cut_terms(const cut_problem& p)
      : p_{p},
        m_{static_cast<double>(p.microbatches)},
        bound_{*p.bound},
        share_nodes_{std::ranges::max(p.stages_of_node) > 1} {}

  /// Memory: strictly less than the GPU has, with the micro-batches in flight at that position.
  bool fits(const range_costs& k, std::size_t type, std::uint32_t behind) const {
    return k.bytes + p_.held[behind] * k.bytes_each < p_.bytes[type];
  }
  /// Term (1), own work, less S: (m - min(m, w)) f + (m - 1) (r + b).
  double work_s(const range_costs& k, std::uint32_t behind) const {
    const double warm = std::min<double>(m_, behind + 1);
    return m_ * k.step_s() - warm * k.forward_s - k.recompute_s - k.backward_s;
  }
  /// The work of a stage after the first micro-batch has come back to it, less S: term (1), and
  /// with longer chains (`lower_bound`) the trips of term (3). `through_s` is Y of the stage,
  /// `behind_s` Y of the next one.
  double after_first_s(const range_costs& k, std::uint32_t behind, double through_s,
                       double behind_s) const {
    const double work = work_s(k, behind);
    if (!p_.lower_bound) return work;
    return std::max(work, trips_s(p_.microbatches, behind + 1, through_s, behind_s, k.step_s()));
  }
  /// A lower bound of the same, whatever stages are behind it: their work counts as 0.
  double min_own_s(const range_costs& k, std::uint32_t behind) const {
    const double trip_s = k.forward_s + k.backward_s + bound_.sends_s(behind + 1);
    return after_first_s(k, behind, trip_s, behind > 0 ? bound_.sends_s(behind) : 0);
  }
  /// The largest term of a stage, less S: `after_first`, or the rounds of term (2), (R - 1) Y +
  /// ((m - 1) mod w) f. And whatever is in front, its m steps and the way to it and back.
  double own_s(const range_costs& k, std::uint32_t behind, double through_s,
               double after_first) const {
    const auto r = rounds_of(p_.microbatches, behind + 1);
    const double own = std::max(after_first, (r.full - 1) * through_s + r.rest * k.forward_s);
    // Stages in front may share nodes otherwise than they do here, and reach this one sooner.
    return share_nodes_ ? own : std::max(own, m_ * k.step_s() - through_s);
  }
  /// Time in which a stage and its peers sum `bytes` of gradients: a reduce-scatter and an
  /// all-gather of chunks over the link that takes the longest.
  double sums_s(double bytes, std::size_t type) const {
    if (p_.pipelines == 1) return 0;
    const auto& w = p_.links[type * (p_.types() + 1)];
    return 2 * (p_.chunks_to_peers[type].total_s(bytes / p_.pipelines) + w.latency_s);
  }
  /// Copying gradients to the host, if a peer or the other end of a tied embedding needs them.
  double gradients_s(const range_costs& k, bool tied) const {
    return (p_.pipelines > 1 || tied) && k.gradient_bytes > 0 ? k.gradients_s : 0;
  }
  /// Everything after a stage's last backward, on idle links.
  double after_s(const range_costs& k, std::size_t type, bool tied) const {
    return k.update_s + gradients_s(k, tied) + sums_s(k.gradient_bytes, type);
  }
  /// From the last stage to the first, or back.
  double tied_way_s(const cut_label& l, std::size_t first_type) const {
    const auto& w = p_.links[l.last_type * p_.types() + first_type];
    return w.alone_s(l.last_tied_bytes) + w.latency_s;
  }
  /// Starts a label at the last stage of a pipeline with a tied embedding: keeps what end_tied
  /// needs.
  void begin_tied(cut_label& l, const range_costs& k, std::size_t type) const {
    l.last_type = static_cast<std::uint16_t>(type);
    l.last_gradients = gradients_s(k, true);
    l.last_sums = sums_s(k.gradient_bytes - std::min(k.gradient_bytes, k.tied_bytes), type);
    l.last_update = k.update_s;
    l.last_tied_bytes = k.tied_bytes;
  }
  /// When a first stage has its sums with a tied embedding: the last stage's part of the gradients
  /// comes to it, and is summed there with all peers'.
  double tied_sums_s(const cut_label& l, const range_costs& k, std::size_t type) const {
    const double begin_s = gradients_s(k, true), there_s = tied_way_s(l, type);
    // The last stage's part may come while the first one's backwards still run.
    const double here_s = p_.lower_bound
                              ? std::max(begin_s, l.last_gradients + there_s - l.backwards)
                              : begin_s + there_s;
    return here_s + sums_s(k.gradient_bytes, type);
  }
  /// Completes the tail of a tied embedding at the first stage, whose sum goes back. Where stages
  /// agree on updates nobody waits for that.
  void end_tied(cut_label& l, const range_costs& k, std::size_t type) const {
    const double back_s = p_.agrees ? 0 : tied_way_s(l, type);
    double last_s = l.last_sums;
    if (!p_.agrees) {
      const double update_s = p_.lower_bound ? std::max(k.update_s, back_s + l.last_update)
                                             : std::max(k.update_s, l.last_update);
      l.tail = std::max(l.tail, tied_sums_s(l, k, type) + update_s);
      if (!p_.lower_bound) last_s = std::max(last_s, 2 * back_s + sums_s(k.gradient_bytes, type));
    }
    l.tail = std::max(l.tail, l.last_gradients + last_s + l.last_update - l.backwards);
  }
  /// Where stages agree on updates (cost/end_of_sums.cpp): the front stage's own word, which its
  /// peers' ways precede, and from the first stage on also the way back to these, and the update.
  void agree(cut_label& l, const range_costs& k, std::size_t type, bool last, bool first) const {
    const double way_s = p_.pipelines > 1 ? p_.links[type * (p_.types() + 1)].latency_s : 0;
    double ready_s = gradients_s(k, p_.tied && first) + sums_s(k.gradient_bytes, type);
    if (last && p_.tied) ready_s = l.last_gradients + l.last_sums;
    if (first && p_.tied) ready_s = tied_sums_s(l, k, type);
    l.word = last ? ready_s + way_s : std::max(l.word, ready_s + way_s);
    if (first) l.tail = std::max(l.tail, l.word + way_s + k.update_s);
  }
  /// Lower bound of what any stage of this type does after its last backward; with the backward,
  /// also that and the transfer that its gradients arrive by. One piece is the cheapest range.
  double min_after_s(std::size_t type, bool with_backward) const {
    double send_s = p_.own_links ? never : 0;
    for (const auto& w : p_.links)
      send_s = std::min(send_s, w.alone_s(p_.table->min_activation_bytes()) + w.latency_s);
    double lower_bound = never;
    for (std::uint32_t first = 0; first < 3 && first + 1 < p_.table->size(); ++first) {
      const auto& k = p_.table->middle(type, first, 1);
      lower_bound = std::min(lower_bound,
                             after_s(k, type, false) + (with_backward ? k.backward_s + send_s : 0));
    }
    return lower_bound;
  }

 protected:
  const cut_problem& p_;
  double m_;
  const iteration_bound& bound_;
  bool share_nodes_;  // stages of a pipeline
};

}  // namespace troupe::planners
