#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/training/collectives/gradient_all_reduce.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// The squared norm of all gradients of a pipeline, for programs that clip by it. The running sum
/// goes from the last stage to the first, and the whole sum back: so layers are added from the last
/// to the first, and the bits are the same however the model is cut. Later stages end an iteration
/// first, so the sum is with the first stage before that has its own norms, and it goes back beside
/// the next iteration's first activation: no iteration is longer by a way between stages.
class norm_exchange {
 public:
  using outgoing = std::vector<gradient_all_reduce::outgoing>;

  norm_exchange() = default;
  explicit norm_exchange(const stage_setup& s)
      : pipeline_{s.name.pipeline}, stage_{s.name.stage}, stages_{s.stages} {}

  /// The squared norms of this stage's layers. Returns what to send.
  outgoing begin(std::vector<double> norms);
  /// From a neighbour; it may arrive before begin(). Returns what to send.
  outgoing receive(const tensor& t, const payload& body);

  bool has_begun() const { return norms_.has_value(); }
  bool complete() const { return total_.has_value(); }
  double result() const { return total_.value_or(0); }
  /// The tensor that this stage waits for, once it has begun.
  std::vector<gradient_all_reduce::missing_tensor> missing() const;
  /// A received tensor has the wrong size; empty: none has.
  const std::string& error() const { return error_; }

 private:
  bool is_first() const { return stage_ == 0; }
  bool is_last() const { return stage_ + 1 == stages_; }
  outgoing advance();
  outgoing pass_on() const;
  gradient_all_reduce::outgoing to(std::uint32_t stage, tensor::kind what, double sum) const;

  std::uint32_t pipeline_ = 0, stage_ = 0, stages_ = 1;
  std::optional<std::vector<double>> norms_;
  std::optional<double> behind_, total_;  // of the stages behind this one, and of all
  bool added_ = false;
  std::string error_;
};

}  // namespace troupe::actors
