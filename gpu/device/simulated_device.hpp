#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <variant>

#include "gpu/device/simulated_values.hpp"
#include "gpu/device/stage_device.hpp"
#include "messages/domain/training.hpp"

namespace troupe::gpu {

/// A device that computes digests only and takes a given time on the world's clock. It executes
/// one operation at a time: the caller waits for `done` before the next.
class simulated_device final : public program_device {
 public:
  /// Calls a function after a number of seconds.
  using timer = std::function<void(double, std::function<void()>)>;

  /// `values`: its own, or shared with the other stages of its replica. `slowdown`: the present
  /// factor for an operation's time; null: 1.
  simulated_device(const stage_costs& costs, std::shared_ptr<simulated_values> values,
                   std::function<double()> slowdown, timer after)
      : costs_{costs},
        values_{std::move(values)},
        slowdown_{std::move(slowdown)},
        after_{std::move(after)} {}

  void submit(operation o, done d) override {
    std::visit([&](const auto& what) { take(what, o.program.iteration, std::move(d)); }, o.what);
  }
  void submit_norms(operations::norms n, done d) override { take(n, n.iteration, std::move(d)); }
  bool has_moving_state() const override { return false; }

  /// The digest of its weights, as of the latest update that was submitted.
  std::uint64_t state() const { return values_->state(); }

 private:
  template <class What>
  void take(const What& what, std::uint64_t iteration, done d) {
    const double s = cost_of(what) * (slowdown_ ? slowdown_() : 1);
    after_(s, [d = std::move(d), made = values_->after(what, iteration), s] {
      d(outcome{made, 0, s});
    });
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
  std::shared_ptr<simulated_values> values_;
  std::function<double()> slowdown_;
  timer after_;
};

}  // namespace troupe::gpu
