#pragma once

#include "planners/cluster/snapshot.hpp"

// The progress of jobs, as policies count on it: in iterations and samples; times in seconds
// (docs/planners/troupe.md, "The decision": left(j)).

namespace troupe::planners {

/// The progress of a job as its view says it, for any time: by its last report if there is one,
/// otherwise by what its present attempt was expected to do.
class job_pace {
 public:
  job_pace() = default;  // of no job
  job_pace(const cluster& c, const job_view& j);

  /// Iterations that it has done, parts of one included.
  double iterations_by(double now_s) const;
  /// Iterations that it still has to do, at least 1.
  double iterations_left(double now_s) const;
  /// Samples that are left, times the measured slowdown: divided by the rate that a plan is
  /// expected to have, the seconds that they take.
  double samples_left(double now_s) const;

  bool operator==(const job_pace&) const = default;

 private:
  double done_ = 0, since_s_ = 0, start_s_ = 0;  // iterations since then, after its start
  double iteration_s_ = 0;                       // 0: it does none
  double iterations_ = 0, batch_ = 0, slowdown_ = 1;
};

/// Those at `s.now_s`: see job_pace.
double iterations_by_now(const snapshot& s, const job_view& j);
double iterations_left(const snapshot& s, const job_view& j);
double samples_left(const snapshot& s, const job_view& j);

/// The measured time of an iteration over the expected one; 1 where nothing has been reported, or
/// where plans have the measured speed.
double measured_slowdown(const job_view& j);

}  // namespace troupe::planners
