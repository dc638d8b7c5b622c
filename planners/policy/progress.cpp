#include "planners/policy/progress.hpp"

#include <algorithm>

#include "planners/policy/elastic_jobs.hpp"

namespace troupe::planners {

// A report is evidence, so that what the attempt was expected to do counts only before the first
// one. The time since then is extrapolated at the measured speed; without a report an attempt does
// no work while it starts.
job_pace::job_pace(const cluster& c, const job_view& j)
    : iterations_{static_cast<double>(j.spec->iterations)},
      batch_{static_cast<double>(j.spec->global_batch)},
      slowdown_{measured_slowdown(j)} {
  if (j.reported) {
    done_ = static_cast<double>(j.reported->iteration);
    since_s_ = j.reported->at_s;
    iteration_s_ = j.reported->iteration_s;
    return;
  }
  done_ = static_cast<double>(j.progress.iterations_done);
  if (j.where.empty() || !(j.iteration_s > 0)) return;
  since_s_ = j.started_s;
  start_s_ = j.start_s ? *j.start_s : start_of(c, j);
  iteration_s_ = j.iteration_s;
}

double job_pace::iterations_by(double now_s) const {
  if (!(iteration_s_ > 0)) return done_;
  return done_ + std::max(0.0, now_s - since_s_ - start_s_) / iteration_s_;
}

// At least one iteration is left: a job that is behind its estimate must not look finished, or
// shortest-first orders would divide by 0.
double job_pace::iterations_left(double now_s) const {
  return std::max(1.0, iterations_ - iterations_by(now_s));
}

// Slower iterations than expected count as more work, not as another speed: whatever configuration
// the job gets next is expected to be slower than planned by the same factor.
double job_pace::samples_left(double now_s) const {
  return iterations_left(now_s) * batch_ * slowdown_;
}

double iterations_by_now(const snapshot& s, const job_view& j) {
  return job_pace{s.cluster, j}.iterations_by(s.now_s);
}

double iterations_left(const snapshot& s, const job_view& j) {
  return job_pace{s.cluster, j}.iterations_left(s.now_s);
}

double samples_left(const snapshot& s, const job_view& j) {
  return job_pace{s.cluster, j}.samples_left(s.now_s);
}

// The plans of an elastic program whose speed was measured have it already.
double measured_slowdown(const job_view& j) {
  if (has_measured_rate(j)) return 1;
  return j.reported && j.iteration_s > 0 ? j.reported->iteration_s / j.iteration_s : 1;
}

}  // namespace troupe::planners
