#pragma once

#include <map>

#include "gpu/device/stage_device.hpp"

// What every device refuses, in the same words. A reason with empty text: nothing is wrong.

namespace troupe::gpu {

/// How far each micro-batch has come.
class microbatch_progress {
 public:
  /// Whether it is a micro-batch's turn for forward, recompute or backward.
  reason check(const operation& o) const;

  /// kept: it may go backward next.
  void went_forward(std::uint32_t microbatch, bool kept) { kept_[microbatch] = kept; }
  bool kept(std::uint32_t microbatch) const { return kept_.at(microbatch); }
  void forget(std::uint32_t microbatch) { kept_.erase(microbatch); }
  void clear() { kept_.clear(); }

 private:
  std::map<std::uint32_t, bool> kept_;
};

/// Whether the payloads of forward, backward, sum and update are what the stage takes. `summed`:
/// the device's own sums are those over all pipelines.
reason check_payloads(const stage_spec& s, const operation& o, bool summed = false);

}  // namespace troupe::gpu
