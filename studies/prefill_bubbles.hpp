#pragma once

#include <cstdint>

#include "messages/domain/serving.hpp"
#include "studies/prefill_simulation.hpp"

namespace troupe::cli {

/// What became of the idle time of devices that lend it, by what they did in the iterations that
/// count.
struct bubble_shares {
  // Of all devices' time.
  double prefill = 0;      // computing prompts
  double upper_bound = 0;  // no packing of the offered prompts could take more
  double residual = 0;     // idle all the same
  std::uint64_t residual_bubbles = 0;
  double residual_s = 0;  // the mean of these
};
bubble_shares bubble_shares_of(const studies::simulated_prefills& done, const bubble_lending& how);

}  // namespace troupe::cli
