#pragma once

#include <functional>
#include <utility>

#include "gpu/device/stage_device.hpp"
#include "messages/domain/training.hpp"

namespace troupe::gpu {

/// A device that computes nothing and takes a given time on the world's clock. It executes one
/// operation at a time: the caller waits for `done` before the next.
class simulated_device final : public stage_device {
 public:
  /// Calls a function after a number of seconds.
  using timer = std::function<void(double, std::function<void()>)>;

  /// `slowdown`: the present factor for an operation's time; null: 1.
  simulated_device(const stage_costs& costs, std::function<double()> slowdown, timer after)
      : costs_{costs}, slowdown_{std::move(slowdown)}, after_{std::move(after)} {}

  void submit(operation o, done d) override {
    const double s = cost_of(o.what) * (slowdown_ ? slowdown_() : 1);
    after_(s, [d = std::move(d), s] {
      outcome result;
      result.end_s = s;
      d(std::move(result));
    });
  }

 private:
  double cost_of(operation::kind k) const {
    switch (k) {
      case operation::kind::forward:
        return costs_.forward_s;
      case operation::kind::recompute:
        return costs_.recompute_s;
      case operation::kind::backward:
        return costs_.backward_s;
      case operation::kind::update:
        return costs_.update_s;
      case operation::kind::gradients:
        return costs_.gradients_s;
      case operation::kind::norms:
        return costs_.norms_s.value_or(0);
      default:
        return 0;
    }
  }

  stage_costs costs_;
  std::function<double()> slowdown_;
  timer after_;
};

}  // namespace troupe::gpu
