#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "gpu/device/operation.hpp"

namespace troupe::gpu {

/// The kinds of numbers that simulated_values makes: each hash begins with its own.
enum class simulated_kind : std::uint64_t {
  initial = 1,
  data,
  activation,
  loss,
  contribution,  // of a micro-batch to the gradients
  gradient,      // of an activation
  tied,
  joined,  // own gradients with tied ones
  updated
};

/// A simulated stage's weights, gradients and activations, each as a digest (simulated_tensor.hpp).
/// An operation of a real device depends on the same: data on the iteration and the micro-batch's
/// number among all pipelines', gradients on the order in which micro-batches are added.
class simulated_values {
 public:
  struct place {
    std::uint32_t stage = 0, stages = 1;
    std::uint64_t first_microbatch = 0;  // among all pipelines'
    std::uint64_t first_iteration = 0;   // completed before its start
    std::uint64_t seed = 1;
    bool tied = false;  // its embedding or head is tied to another stage's
  };

  simulated_values() = default;
  explicit simulated_values(const place& p);

  /// The inputs of a forward that a stage at an end reads from the data: those of its own place, if
  /// the forward has none.
  static void add_data(operations::forward& o, const place& p, std::uint64_t iteration);

  /// The weights' digest.
  std::uint64_t state() const { return state_; }
  /// They are those of a peer from now on, and nothing is under way.
  void set_state(std::uint64_t state);

  // The result of an operation; `iteration`: completed before.
  operations::forward::result after(const operations::forward& o, std::uint64_t iteration);
  operations::backward::result after(const operations::backward& o, std::uint64_t iteration);
  own_and_tied after(const operations::gradients& o, std::uint64_t iteration);
  operations::reset::result after(const operations::reset&, std::uint64_t);
  operations::update::result after(const operations::update& o, std::uint64_t iteration);
  operations::norms::result after(const operations::norms& o, std::uint64_t iteration);
  operations::digest::result after(const operations::digest&, std::uint64_t) const {
    return {state_};
  }
  template <class Other>
  typename Other::result after(const Other&, std::uint64_t) const {
    return {};
  }

 private:
  bool first() const { return place_.stage == 0; }
  bool last() const { return place_.stage + 1 == place_.stages; }
  void take(const own_and_tied& sums);

  struct held {
    std::uint64_t input = 0;
    std::uint64_t number = 0;  // of the micro-batch, among all pipelines'; of the last stage
  };
  place place_;
  std::uint64_t state_ = 0;
  std::map<std::uint32_t, held> inputs_;    // by micro-batch between its forward and backward
  std::optional<std::uint64_t> gradients_;  // none: no backward since the last update
  std::optional<std::uint64_t> own_sums_, tied_sums_;  // over all pipelines
};

}  // namespace troupe::gpu
