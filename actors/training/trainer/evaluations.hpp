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
  evaluations() = default;
  /// A training with a target ends when an evaluation's loss is at most that.
  explicit evaluations(const training& how);

  /// Also of the iterations before the one that the training resumes after.
  void add(const iteration_record& r);

  /// The lowest loss; of equal ones the first.
  const std::optional<evaluation>& best() const { return best_; }

  /// As reports show them; none: it has not evaluated.
  std::optional<held_out_losses> losses() const;

  /// The evaluation after that many iterations, if it has reached the target.
  std::optional<evaluation> reached(std::uint64_t iteration) const;

  /// The iteration after `done` that may be the last: with a target the next one that is evaluated.
  std::uint64_t next_end(std::uint64_t done, std::uint64_t total) const;

 private:
  std::optional<double> target_;
  std::uint64_t every_ = 0;  // iterations between evaluations; 0: they decide nothing
  std::optional<evaluation> newest_;
  std::optional<evaluation> best_;
};

}  // namespace troupe::actors
