#include <algorithm>
#include <limits>

#include "planners/search/job_space/cost_model_times.hpp"

// The charges of the closed form for stages because of the nodes that they are on: hops that leave
// a node, and sums that share its card.

namespace troupe::planners {

double cost_model_times::peers_here(std::uint32_t cls, bool kinds) const {
  const auto& c = problem_.classes[cls];
  std::uint32_t largest = 0, smallest_degree = c.tensor;
  for (const auto& p : problem_.pools)
    if (p.kind == c.kind) largest = std::max(largest, std::ranges::max(p.free));
  for (const auto& other : problem_.classes)
    if (kinds && other.kind == c.kind) smallest_degree = std::min(smallest_degree, other.tensor);
  return largest < c.tensor ? 1 : 1.0 + (largest - c.tensor) / smallest_degree;
}

// A hop inside a datacenter is as long as its slower end has it, so each end's fastest link to
// another node is a floor. One over the WAN is beside a program's steps, and may be the shorter
// way.
space_times::hop_floor cost_model_times::leaving_floor(std::uint32_t rows, std::uint32_t cls,
                                                       bool to_next) const {
  constexpr double no_link = std::numeric_limits<double>::infinity();
  const auto& c = facts(rows).classes[cls];
  if (!(std::min(c.leaving_send_s, c.crossing_s) < no_link)) return {no_link, 0, 0};
  if (!sends_in_steps_) {
    // The sender's end of the hop to the next stage stands for both ways.
    if (!to_next) return {};
    return {2 * (std::min(c.leaving_send_s, c.crossing_s) - std::min(c.send_s, c.crossing_s)), 0,
            0};
  }
  const double hop_s = c.leaving_send_s + c.launch_s + c.leaving_receive_s;
  const double way_s = std::min(hop_s, c.crossing_s) - std::min(c.hop_s, c.crossing_s);
  if (c.crossing_s < no_link) return {way_s, 0, 0};
  if (!(hop_s < no_link)) return {no_link, 0, 0};
  // A forward sends to the stage behind, or receives from the one in front.
  return {way_s, hop_s - c.hop_s,
          to_next ? c.leaving_send_s - c.send_s : c.leaving_receive_s - c.receive_s};
}

// Inside one datacenter each of the stages on a node sends 2 (n - h) chunks of b / n over its card,
// of which each takes the card's time at its fastest rate at least (end_of_sums.cpp); the first
// stage is the last one to, so that it has its sum when all are sent. Over several datacenters
// peers may be in runs of their own, which send nothing over the card.
space_times::node_sum cost_model_times::node_sum_of(std::uint32_t rows, std::uint32_t cls,
                                                    std::uint32_t first,
                                                    std::uint32_t count) const {
  const bool several = problem_.space.several_datacenters && problem_.datacenters > 1;
  if (several || links_->has_domains() || job_.pipeline.overlap.value_or(false)) return {};
  const auto& c = facts(rows).classes[cls];
  const bool last = first + count == problem_.pieces;
  const auto& k = costs(c, first, count, last ? 0 : 1);
  const double bytes = c.table->max_activation_bytes();
  const double hidden_s = k.backward_s + 2 * links_->longest_inside_s(c.kind, bytes) + c.launch_s;
  return {sum_of(rows, cls, first, count).over_card_s, hidden_s, k.update_s, k.forward_s};
}

}  // namespace troupe::planners
