#pragma once

#include <cstdint>

#include "messages/domain/serving.hpp"
#include "planners/bubbletea/bubbles.hpp"

namespace troupe::studies {

struct simulated_prefills;

/// The use of idle time on devices that lend it. Shares are of all devices' time.
struct bubble_shares {
  double prefill = 0;      // computing prompts
  double upper_bound = 0;  // no packing of the offered prompts could use more
  double residual = 0;     // idle all the same
  std::uint64_t residual_bubbles = 0;
  double residual_s = 0;  // mean length of these
};

/// Sums over devices, for bubble_shares.
class bubble_tally {
 public:
  /// Windows up to `rounding_s` long are not idle time but errors of rounded times.
  explicit bubble_tally(double rounding_s = 0) : rounding_s_{rounding_s} {}

  /// A device in a time of `span_s`: its idle windows without the training, the windows that its
  /// guest used, and the bound of any packing in seconds.
  void add(double span_s, const planners::idle_windows& idle, const planners::idle_windows& used,
           double bound_s);
  bubble_shares shares() const;

 private:
  double rounding_s_;
  double all_s_ = 0, prefill_s_ = 0, bound_s_ = 0, residual_s_ = 0;
  std::uint64_t residual_bubbles_ = 0;
};

/// The devices of a simulated training, in the iterations that count (counted_of). Empty if the
/// training lent none.
bubble_shares bubble_shares_of(const simulated_prefills& done, const bubble_lending& how);

}  // namespace troupe::studies
