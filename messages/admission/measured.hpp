#pragma once

#include <cstdint>

#include "messages/admission/admission.hpp"

// Bounds of numbers that programs, trainers and nodes measure, and that policies compute with:
// those of the same numbers in a job file. What is outside of them is no measurement. Checked where
// a report arrives, and again where a journal of an earlier version may have other numbers.

namespace troupe::admission {

inline constexpr double min_step_s = 1e-6;          // no machine completes an iteration faster
inline constexpr double min_samples_per_s = 1e-12;  // one in 30,000 years
inline constexpr double max_memory_bytes = 1e15;    // as `memory_gb`

/// From 0 to the limit of a job file's times; NaN is none.
constexpr bool is_time(double s) {
  return s >= 0 && s <= max_seconds;
}
/// Time of an iteration.
constexpr bool is_step(double s) {
  return s >= min_step_s && s <= max_seconds;
}
constexpr bool is_rate(double samples_per_s) {
  return samples_per_s >= min_samples_per_s && samples_per_s <= max_samples_per_s;
}
constexpr bool is_memory(double bytes) {
  return bytes >= 0 && bytes <= max_memory_bytes;
}
constexpr bool is_count(std::uint64_t iterations) {
  return iterations <= max_iterations;
}

}  // namespace troupe::admission
