#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "actors/training/stage/stage_times.hpp"
#include "messages/wire/frame.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// The activations and gradients that a stage has received from its neighbours, of two iterations:
/// a neighbour that has completed this one may already send tensors of the next.
class received_tensors {
 public:
  /// `s` is the stage's own, and outlives it.
  void begin(const stage_setup& s, std::uint64_t iteration);
  /// Held-out micro-batches follow, whose numbers are those behind the iteration's own.
  void begin_evaluation() { evaluating_ = true; }
  /// The next iteration begins.
  void end_iteration();

  /// Does the stage keep tensors of this iteration?
  bool accepts(std::uint64_t iteration) const {
    return iteration == iteration_ || iteration == iteration_ + 1;
  }
  /// It was requested again although it was not lost.
  bool is_duplicate(const tensor& t) const;
  /// An activation or a gradient. REQUIRES: accepts(t.iteration).
  void add(const tensor& t, const payload& body);
  /// A tensor that comes from another datacenter. REQUIRES: accepts(t.iteration).
  void add_transfer(const tensor& t, double training_time_s);

  /// Has the present iteration the input of this step?
  bool has_input(const stage_step& s) const;
  /// REQUIRES: has_input(). Empty: the stage at this end computes it from tokens.
  payload take_input(const stage_step& s);
  /// The micro-batches whose tensor of this kind is missing, of the iteration's own or, once they
  /// have begun, of the held-out ones; none at the end that receives none.
  std::vector<std::uint32_t> missing(tensor::kind what) const;

  /// The size of the latest activation.
  std::uint64_t input_bytes() const { return input_bytes_; }
  /// Transfers of the present iteration.
  const hop_times& hops() const { return now().hops; }

 private:
  struct box {
    std::vector<std::optional<payload>> activation, gradient;  // by micro-batch
    hop_times hops;
  };
  box empty_box() const;
  box& now() { return boxes_[iteration_ % 2]; }
  const box& now() const { return boxes_[iteration_ % 2]; }
  bool first() const { return setup_->name.stage == 0; }
  bool last() const { return setup_->name.stage + 1 == setup_->stages; }

  const stage_setup* setup_ = nullptr;
  std::uint64_t iteration_ = 0;  // completed
  std::uint32_t held_out_ = 0;   // micro-batches of held-out samples
  bool evaluating_ = false;
  std::array<box, 2> boxes_;  // by iteration
  std::uint64_t input_bytes_ = 0;
};

}  // namespace troupe::actors
