#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "actors/training/collectives/gradient_all_reduce.hpp"

namespace troupe::actors {

/// Like gradient_all_reduce, where the devices of a stage and its peers all-reduce among themselves
/// (gpu::operation::kind::sum). Only a tied embedding's parts travel in messages, and they are
/// added in the same order: in the first stage, before the pipelines' all-reduce.
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

  /// Can the device start its all-reduce? Then with what. Once.
  bool may_sum() const { return !asked_ && (!takes_tied_ || others_); }
  std::vector<payload> in();

  /// The device has finished its all-reduce, and returned a tied embedding's part. Returns what to
  /// send.
  std::vector<gradient_all_reduce::parcel> summed(std::vector<payload> tied);

  bool complete() const { return summed_ && (!gives_tied_ || others_); }
  /// A tied embedding's sum, for the device that holds a part of it; otherwise nothing.
  payload result() { return gives_tied_ ? std::move(*others_) : payload{}; }

 private:
  std::uint32_t pipeline_ = 0, last_stage_ = 0;
  bool gives_tied_ = false, takes_tied_ = false;  // the last stage, the first one
  std::optional<payload> others_;
  bool asked_ = false, summed_ = false;
};

}  // namespace troupe::actors
