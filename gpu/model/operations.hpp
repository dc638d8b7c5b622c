#pragma once

#include <map>

#include "gpu/device/stage_device.hpp"

// Operations that every device refuses, with the same errors.

namespace troupe::gpu {

/// The progress of each micro-batch.
class microbatch_progress {
 public:
  /// Is forward, recompute or backward valid for this micro-batch now?
  expected<void> check(const operation& o) const;

  /// The activations are kept: its backward may follow.
  void went_forward(std::uint32_t microbatch, bool kept) { kept_[microbatch] = kept; }
  bool kept(std::uint32_t microbatch) const { return kept_.at(microbatch); }
  void forget(std::uint32_t microbatch) { kept_.erase(microbatch); }
  void clear() { kept_.clear(); }

 private:
  std::map<std::uint32_t, bool> kept_;
};

/// Do the payloads of forward, backward, sum and update have the stage's sizes? `summed`: the
/// device's gradients are those summed over all pipelines.
expected<void> check_payloads(const stage_spec& s, const operation& o, bool summed = false);

}  // namespace troupe::gpu
