#pragma once

#include <cstdint>
#include <optional>

#include "messages/domain/job.hpp"
#include "messages/domain/work_kind.hpp"

namespace troupe {

/// The number that the user said, and not the 1 that stands for "unknown". A program's 1 is the
/// user's only with the flag that says so: files and clients before 0.4 have 1 for "unknown"
/// without a flag.
inline std::optional<std::uint64_t> stated_iterations(const job_spec& s) {
  if (!facts_of(s).has_end) return {};
  const bool assumed =
      facts_of(s).has_processes && s.assumed.iterations.value_or(s.iterations <= 1);
  return assumed ? std::nullopt : std::optional{s.iterations};
}

/// The stated number of iterations, or `otherwise`.
inline std::uint64_t iterations_or(const job_spec& s, std::uint64_t otherwise) {
  return stated_iterations(s).value_or(otherwise);
}

/// Those of a finished job that has done `done`: a training with a target may end before the last.
inline std::uint64_t iterations_at_end(const job_spec& s, std::uint64_t done) {
  return s.train && s.train->target_loss ? done : iterations_or(s, done);
}

/// As stated_iterations(), for samples of an iteration.
inline std::optional<std::uint32_t> stated_batch(const job_spec& s) {
  if (!facts_of(s).has_end) return {};
  const bool assumed = facts_of(s).has_processes && s.assumed.batch.value_or(s.global_batch <= 1);
  return assumed ? std::nullopt : std::optional{s.global_batch};
}

}  // namespace troupe
