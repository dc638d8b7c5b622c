#pragma once

#include <cstdint>

#include "messages/base/fields.hpp"

namespace troupe {

/// The results of a job's attempts so far.
struct job_progress {
  std::uint32_t attempts = 0;         // leases that it was given
  std::uint64_t iterations_done = 0;  // those that survive a failure
  double ran_s = 0;                   // in all attempts that have ended
  /// Attempts in a row that ended by a node's fault without progress; what else is progress, says
  /// work_facts::proof_s.
  std::uint32_t losses = 0;
  std::uint32_t retried = 0;  // attempts in a row that the job failed

  TROUPE_FIELDS(job_progress, attempts, iterations_done, ran_s, losses, retried);
};

}  // namespace troupe
