#pragma once

#include <optional>
#include <vector>

// How far losses may be from the CPU engine's in 32 bits. Two correct trainings part: by rounding,
// and by what they learn from it.

namespace troupe::bench {

/// The steps in which trainings in 16 bits have hardly parted yet.
constexpr std::size_t early_steps = 50;
// As a fraction of the loss. In 32 bits both sides do the same up to the order of sums; in 16 bits
// five times what a single step may be off (devices.cpp of tests/gpu).
constexpr double within_32 = 1e-3, within_16 = 5e-3;

/// Largest relative difference in the first `early_steps`, and in the steps after them. Infinite if
/// the numbers of losses differ or a loss is not finite.
struct loss_distance {
  double early = 0, later = 0;
};
loss_distance distance_of(const std::vector<double>& losses, const std::vector<double>& reference);

/// The allowed distances; no value: any distance.
struct loss_limits {
  double early = 0;
  std::optional<double> later;
};
constexpr loss_limits limits_32{within_32, within_32};
/// PyTorch in 16 bits has no later limit, because it is the yardstick then.
constexpr loss_limits limits_of_peer{within_16, std::nullopt};
/// Limits of the engine in 16 bits: later it may be twice as far as PyTorch in 16 bits ever was,
/// or as far as in 32 bits if that is more. Without PyTorch, or with one that was too far in the
/// first steps to be a yardstick, the limit of the first steps holds later, too.
loss_limits limits_beside(const std::optional<loss_distance>& peer);

bool is_within(const loss_distance& d, const loss_limits& l);

}  // namespace troupe::bench
