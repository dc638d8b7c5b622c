#pragma once

#include <cstdint>
#include <optional>

#include "gpu/model/checkpoint_retention.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// A loss of held-out samples, after that many iterations.
using evaluation = gpu::best_checkpoint;

/// The evaluation that an iteration has ended with, if it has one: a program's value of this name.
inline constexpr const char* held_out_value = "held_out_loss";
std::optional<evaluation> evaluation_of(const iteration_record& r);

/// The evaluations of a training, so far as others depend on them.
class evaluations {
 public:
  /// Also of the iterations before the one that the training resumes after.
  void add(const iteration_record& r);

  /// The lowest loss; of equal ones the first.
  const std::optional<evaluation>& best() const { return best_; }

 private:
  std::optional<evaluation> best_;
};

}  // namespace troupe::actors
