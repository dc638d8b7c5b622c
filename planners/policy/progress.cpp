#include "planners/policy/progress.hpp"

#include <algorithm>

#include "planners/policy/elastic_jobs.hpp"

namespace troupe::planners {

// A report is evidence, so that what the attempt was expected to do counts only before the first
// one. The time since then is extrapolated at the measured speed; without a report an attempt does
// no work while it starts. At least one iteration is left: a job that is behind its
// estimate must not look finished, or shortest-first orders would divide by 0.
double iterations_by_now(const snapshot& s, const job_view& j) {
  if (j.reported)
    return static_cast<double>(j.reported->iteration) +
           std::max(0.0, s.now_s - j.reported->at_s) / j.reported->iteration_s;
  const auto done = static_cast<double>(j.progress.iterations_done);
  if (j.where.empty() || !(j.iteration_s > 0)) return done;
  const double start_s = j.start_s ? *j.start_s : start_of(s.cluster, j);
  return done + std::max(0.0, s.now_s - j.started_s - start_s) / j.iteration_s;
}

double iterations_left(const snapshot& s, const job_view& j) {
  return std::max(1.0, static_cast<double>(j.spec->iterations) - iterations_by_now(s, j));
}

// The plans of an elastic program whose speed was measured have it already.
double measured_slowdown(const job_view& j) {
  if (has_measured_rate(j)) return 1;
  return j.reported && j.iteration_s > 0 ? j.reported->iteration_s / j.iteration_s : 1;
}

// Slower iterations than expected count as more work, not as another speed: whatever configuration
// the job gets next is expected to be slower than planned by the same factor.
double samples_left(const snapshot& s, const job_view& j) {
  return iterations_left(s, j) * j.spec->global_batch * measured_slowdown(j);
}

}  // namespace troupe::planners
