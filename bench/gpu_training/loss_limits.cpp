#include "gpu_training/loss_limits.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::bench {

loss_distance distance_of(const std::vector<double>& losses, const std::vector<double>& reference) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  if (losses.size() != reference.size()) return {infinite, infinite};
  loss_distance d;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double off = std::abs(losses[i] - reference[i]) / reference[i];
    auto& max = i < early_steps ? d.early : d.later;
    max = std::max(max, std::isfinite(off) ? off : infinite);
  }
  return d;
}

loss_limits limits_beside(const std::optional<loss_distance>& peer) {
  if (!peer || !is_within(*peer, limits_of_peer)) return {within_16, within_16};
  return {within_16, std::max(within_32, 2 * std::max(peer->early, peer->later))};
}

bool is_within(const loss_distance& d, const loss_limits& l) {
  return d.early <= l.early && (l.later ? d.later <= *l.later : std::isfinite(d.later));
}

}  // namespace troupe::bench
