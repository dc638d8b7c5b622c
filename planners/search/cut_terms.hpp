#pragma once

#include <algorithm>
#include <cstdint>

#include "planners/schedule/schedule.hpp"
#include "planners/schedule/trips.hpp"
#include "planners/search/cut_label.hpp"
#include "planners/search/stage_cut.hpp"

namespace troupe::planners {

/// What one stage of a problem adds to an iteration.
class cut_terms {
 public:
  explicit cut_terms(const cut_problem& p)
      : p_{p},
        m_{static_cast<double>(p.microbatches)},
        bound_{*p.bound},
        share_nodes_{std::ranges::max(p.stages_of_node) > 1} {}

  bool fits(const range_costs& k, std::size_t type, std::uint32_t behind) const {
    return k.bytes + p_.held[behind] * k.bytes_each < p_.bytes[type];
  }
  /// The closed form's term for a stage's own work, less S.
  double work_s(const range_costs& k, std::uint32_t behind) const {
    const double warm = std::min<double>(m_, behind + 1);
    return m_ * k.step_s() - warm * k.forward_s - k.recompute_s - k.backward_s;
  }
  /// What a stage does after the first micro-batch has come back to it, beyond S. It and those
  /// behind it have `through_s` of S, those behind it `behind_s`.
  double after_first_s(const range_costs& k, std::uint32_t behind, double through_s,
                       double behind_s) const {
    const double work = work_s(k, behind);
    if (!p_.lower_bound) return work;
    return std::max(work, trips_s(p_.microbatches, behind + 1, through_s, behind_s, k.step_s()));
  }
  /// The same, at least, whatever is behind it.
  double min_own_s(const range_costs& k, std::uint32_t behind) const {
    const double trip_s = k.forward_s + k.backward_s + bound_.sends_s(behind + 1);
    return after_first_s(k, behind, trip_s, behind > 0 ? bound_.sends_s(behind) : 0);
  }
  /// All terms for a stage, less S, of which the first is after_first_s.
  double own_s(const range_costs& k, std::uint32_t behind, double through_s,
               double after_first) const {
    const auto r = rounds_of(p_.microbatches, behind + 1);
    const double own = std::max(after_first, (r.full - 1) * through_s + r.rest * k.forward_s);
    // Stages in front may share nodes otherwise than they do here, and reach this one sooner.
    return share_nodes_ ? own : std::max(own, m_ * k.step_s() - through_s);
  }
  /// Until a stage and its peers have summed so many bytes of gradients.
  double sums_s(double bytes, std::size_t type) const {
    if (p_.pipelines == 1) return 0;
    const auto& w = p_.links[type * (p_.types() + 1)];
    return 2 * (p_.chunks_to_peers[type].total_s(bytes / p_.pipelines) + w.latency_s);
  }
  /// Handing out gradients, if others want them.
  double gradients_s(const range_costs& k, bool tied) const {
    return (p_.pipelines > 1 || tied) && k.gradient_bytes > 0 ? k.gradients_s : 0;
  }
  double after_s(const range_costs& k, std::size_t type, bool tied) const {
    return k.update_s + gradients_s(k, tied) + sums_s(k.gradient_bytes, type);
  }

  void begin_tied(cut_label& l, const range_costs& k, std::size_t type) const {
    l.last_type = static_cast<std::uint16_t>(type);
    l.last_gradients = gradients_s(k, true);
    l.last_sums = sums_s(k.gradient_bytes - std::min(k.gradient_bytes, k.tied_bytes), type);
    l.last_update = k.update_s;
    l.last_tied_bytes = k.tied_bytes;
  }
  /// What the ends of a pipeline do after their last backwards: the last one's part of a tied
  /// embedding's gradients comes to the first, and the sum goes back.
  void end_tied(cut_label& l, const range_costs& k, std::size_t type) const {
    const auto& w = p_.links[l.last_type * p_.types() + type];
    const double there_s = w.alone_s(l.last_tied_bytes) + w.latency_s;
    const double first_sums = sums_s(k.gradient_bytes, type), begin_s = gradients_s(k, true);
    double summed_s = begin_s + there_s + first_sums + std::max(k.update_s, l.last_update);
    if (p_.lower_bound)  // the last stage's part may come while the first one's backwards still run
      summed_s = std::max(begin_s, l.last_gradients + there_s - l.backwards) + first_sums +
                 std::max(k.update_s, there_s + l.last_update);
    const double last_s =
        p_.lower_bound ? l.last_sums : std::max(l.last_sums, 2 * there_s + first_sums);
    l.tail = std::max({l.tail, summed_s, l.last_gradients + last_s + l.last_update - l.backwards});
  }
  /// Of a first stage of this type, at least: what it does after its last backward; with it, and
  /// the way that its gradients come.
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

 private:
  const cut_problem& p_;
  double m_;
  const iteration_bound& bound_;
  bool share_nodes_;  // stages of a pipeline
};

}  // namespace troupe::planners
