#pragma once

#include <map>

#include "gpu/device/stage_device.hpp"

// Operations that every device refuses, with the same errors.

namespace troupe::gpu {

/// The progress of each micro-batch.
class microbatch_progress {
 public:
  /// Is this valid for its micro-batch now?
  expected<void> check(const operations::forward& o) const;
  expected<void> check(const operations::recompute& o) const;
  expected<void> check(const operations::backward& o) const;
  /// Other operations are of no micro-batch.
  template <class Other>
  expected<void> check(const Other&) const {
    return {};
  }

  /// The activations are kept: its backward may follow.
  void went_forward(std::uint32_t microbatch, bool kept) { kept_[microbatch] = kept; }
  bool kept(std::uint32_t microbatch) const { return kept_.at(microbatch); }
  void forget(std::uint32_t microbatch) { kept_.erase(microbatch); }
  void clear() { kept_.clear(); }

 private:
  std::map<std::uint32_t, bool> kept_;
};

/// Do the payloads have the stage's sizes? `summed`: the device's gradients are those summed over
/// all pipelines.
expected<void> check_payloads(const stage_spec& s, const operations::forward& o, bool summed);
expected<void> check_payloads(const stage_spec& s, const operations::backward& o, bool summed);
expected<void> check_payloads(const stage_spec& s, const operations::update& o, bool summed);
expected<void> check_payloads(const stage_spec& s, const operations::sum& o, bool summed);
/// Other operations have none that depend on the stage.
template <class Other>
expected<void> check_payloads(const stage_spec&, const Other&, bool) {
  return {};
}

}  // namespace troupe::gpu
