#pragma once

#include <functional>
#include <utility>
#include <variant>

#include "gpu/device/stage_device.hpp"
#include "messages/domain/training.hpp"

namespace troupe::gpu {

/// A device that computes nothing and takes a given time on the world's clock. It executes one
/// operation at a time: the caller waits for `done` before the next.
class simulated_device final : public program_device {
 public:
  /// Calls a function after a number of seconds.
  using timer = std::function<void(double, std::function<void()>)>;

  /// `slowdown`: the present factor for an operation's time; null: 1.
  simulated_device(const stage_costs& costs, std::function<double()> slowdown, timer after)
      : costs_{costs}, slowdown_{std::move(slowdown)}, after_{std::move(after)} {}

  void submit(operation o, done d) override {
    std::visit([&](const auto& what) { take(what, std::move(d)); }, o.what);
  }
  void submit_norms(operations::norms n, done d) override { take(n, std::move(d)); }

 private:
  template <class What>
  void take(const What& what, done d) {
    const double s = cost_of(what) * (slowdown_ ? slowdown_() : 1);
    after_(s, [d = std::move(d), s] { d(outcome{typename What::result{}, 0, s}); });
  }

  double cost_of(const operations::forward&) const { return costs_.forward_s; }
  double cost_of(const operations::recompute&) const { return costs_.recompute_s; }
  double cost_of(const operations::backward&) const { return costs_.backward_s; }
  double cost_of(const operations::update&) const { return costs_.update_s; }
  double cost_of(const operations::gradients&) const { return costs_.gradients_s; }
  double cost_of(const operations::norms&) const { return costs_.norms_s.value_or(0); }
  template <class Other>
  double cost_of(const Other&) const {
    return 0;
  }

  stage_costs costs_;
  std::function<double()> slowdown_;
  timer after_;
};

}  // namespace troupe::gpu
