#pragma once

#include <cstddef>
#include <string>

#include "planners/cluster/snapshot.hpp"
#include "planners/troupe/contender.hpp"

// A sentence for `troupe explain` about each decision of Troupe's policy, with its figures: GPUs,
// seconds, and seconds of waiting per GPU-second (docs/planners/troupe.md, "Checks").

namespace troupe::planners {

/// Why a job starts, grows, shrinks or moves as it was assigned.
std::string why_assigned(const cluster& c, const assigned& a);

/// Running jobs of the same or a lower priority that are not stopped for a job because they began
/// lately (rule 4): how many, and for how many seconds more the first of them.
struct settling_jobs {
  std::size_t jobs = 0;
  double left_s = 0;

  /// "; 2 of them began lately and ...", the end of a sentence; empty: there are none.
  std::string text() const;
};

/// Why a job waits. `before`: running jobs that come before it; `fixed`: others that are not
/// stopped for it.
std::string why_behind(const snapshot& s, const contender& x, std::size_t before, std::size_t fixed,
                       const settling_jobs& settling = {});

/// The note of a job that waits and could start (assigned::wait_s). `until_s`: when it starts on
/// what there is.
wait_note note_patient(const snapshot& s, const assigned& a, double until_s);
/// Why it waits, by that note.
std::string why_patient(const snapshot& s, const wait_note& note);

}  // namespace troupe::planners
