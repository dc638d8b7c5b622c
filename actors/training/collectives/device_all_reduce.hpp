#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "actors/training/collectives/gradient_all_reduce.hpp"

namespace troupe::actors {

/// Like gradient_all_reduce, where the devices of a stage and its peers all-reduce directly
/// (gpu::operations::sum). Only a tied embedding's gradients are sent as tensors, and they are
/// added in the same order: in the first stage, before the pipelines' all-reduce.
class device_all_reduce {
 public:
  device_all_reduce() = default;
  explicit device_all_reduce(const stage_setup& s) { begin(s); }

  /// An iteration begins: forgets what the previous one has received.
  void begin(const stage_setup& s);

  /// Takes a tied embedding's gradient, or its sum, from another stage; it may arrive at any time.
  void receive(payload body) {
    if (!received_tied_) received_tied_ = std::move(body);
  }
  /// The tensors that this stage waits for.
  std::vector<gradient_all_reduce::missing_tensor> missing() const;

  /// Can the device start its all-reduce? start() returns a tied gradient to be added first, if
  /// any; call it once.
  bool can_start() const { return !started_ && (!adds_tied_ || received_tied_); }
  std::optional<payload> start();

  /// The device has finished its all-reduce and returned a tied embedding's gradient. Returns what
  /// to send.
  std::vector<gradient_all_reduce::outgoing> finish_sum(std::optional<payload> tied);

  /// Complete, or but for the last stage's sum of a tied embedding's gradients.
  bool summed() const { return summed_; }
  bool complete() const { return summed_ && (!sends_tied_ || received_tied_); }
  /// The last stage's sum of a tied embedding's gradients, for its device; otherwise nothing.
  payload result() { return sends_tied_ ? std::move(*received_tied_) : payload{}; }

 private:
  std::uint32_t pipeline_ = 0, last_stage_ = 0;
  bool sends_tied_ = false, adds_tied_ = false;  // the last stage, the first one
  std::optional<payload> received_tied_;
  bool started_ = false, summed_ = false;
};

}  // namespace troupe::actors
