#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "actors/training/collectives/gradient_all_reduce.hpp"

namespace troupe::actors {

/// The end of an iteration, as gradient_all_reduce, where the devices of a stage and its peers sum
/// among themselves (gpu::operation::kind::sum). Only a tied embedding's parts are in messages, and
/// they meet in the same order: in the first stage, before the pipelines' do.
class device_all_reduce {
 public:
  device_all_reduce() = default;
  explicit device_all_reduce(const stage_setup& s);

  /// What came of a tied embedding from another stage; it may come at any time.
  void take(payload body) {
    if (!others_) others_ = std::move(body);
  }
  /// What of it this stage waits for.
  std::vector<gradient_all_reduce::missing_tensor> missing() const;

  /// May the device sum? Then with what. Once.
  bool may_sum() const { return !asked_ && (!takes_tied_ || others_); }
  std::vector<payload> in();

  /// The device has summed, and gave that of a tied embedding. Gives what to send.
  std::vector<gradient_all_reduce::parcel> summed(std::vector<payload> tied);

  bool complete() const { return summed_ && (!gives_tied_ || others_); }
  /// A tied embedding's sum, for the device that has a part of it; else nothing.
  payload result() { return gives_tied_ ? std::move(*others_) : payload{}; }

 private:
  std::uint32_t pipeline_ = 0, last_stage_ = 0;
  bool gives_tied_ = false, takes_tied_ = false;  // the last stage, the first one
  std::optional<payload> others_;
  bool asked_ = false, summed_ = false;
};

}  // namespace troupe::actors
