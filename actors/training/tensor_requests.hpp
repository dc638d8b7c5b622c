#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "actors/training/sent_tensors.hpp"
#include "messages/base/time.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// How a stage recovers tensors that were lost on their way to it: it requests those that are
/// overdue, somewhat later than the slowest of their kind took before, and again less and less
/// often. sent_tensors is the other side. Nothing is acknowledged, so that a tensor that arrives
/// costs one message.
class tensor_requests {
 public:
  /// The place in the training where a tensor is missing: an iteration, and a step of its order.
  using place = std::pair<std::uint64_t, std::size_t>;
  struct owner {
    std::function<double()> now_s;
    std::function<void(double after_s, std::function<void()>)> call_after;
    /// A request to each stage that has tensors which are missing now.
    std::function<std::vector<tensor_request>()> missing;
    std::function<void(const tensor_request&)> send;
  };

  /// No other stage has it.
  static constexpr double never_s = 3600;

  void begin(owner o) { owner_ = std::move(o); }

  void add_sample(tensor::kind k, double took_s) { timeout_.add_sample(k, took_s); }
  void end_iteration() { timeout_.next_iteration(); }
  /// How long to wait for a tensor. `expected_s`: the estimate until one has been measured.
  double after_s(tensor::kind k, double expected_s) const {
    return timeout_.after_s(k, expected_s);
  }

  /// Is it known already that the stage waits there?
  bool awaits(const place& p) const { return p == awaited_; }
  /// The stage cannot go on without a tensor, to be requested that much later.
  void await(const place& p, double after_s);

 private:
  void check_at(double at_s);
  void request();

  owner owner_;
  request_timeout timeout_;
  place awaited_{~std::uint64_t{0}, 0};
  // Since when the stage waits there, when the tensor is requested, and when the timer fires.
  double waiting_since_s_ = 0, request_at_s_ = 0, timer_at_s_ = never;
};

}  // namespace troupe::actors
