#include "planners/troupe/contender.hpp"

#include <algorithm>
#include <cmath>

#include "messages/domain/work_kind.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "planners/policy/progress.hpp"

namespace troupe::planners {

double overdue_s(const job_view& j, double left, double fastest, const troupe_options& o) {
  const auto& spec = *j.spec;
  const double samples = facts_of(spec).has_known_length
                             ? static_cast<double>(spec.iterations) * spec.global_batch
                             : left;
  return j.submitted_s + o.overdue_times * samples / fastest;
}

double overdue_s(const contender& x, const troupe_options& o) {
  return overdue_s(*x.job, x.samples_left, x.table->fastest_samples_per_s, o);
}

double settled_s(const cluster& c, const job_view& j, const troupe_options& o) {
  const double until_s = j.started_s + o.settle_starts * restart_of(c, j);
  const double step_s = o.settle_step * c.settings.restart_s;
  return step_s > 0 ? std::ceil(until_s / step_s) * step_s : until_s;
}

bool is_settling(const cluster& c, const contender& x, double now_s, const troupe_options& o) {
  return x.runs() && now_s < settled_s(c, *x.job, o);
}

// No longer than a start settles: a job that has started can be moved from then on.
double patience_s(const cluster& c, const job_view& j, const troupe_options& o) {
  return o.settle_starts * restart_of(c, j);
}

double patient_until_s(const cluster& c, const contender& x, const troupe_options& o) {
  return std::min(x.job->submitted_s + patience_s(c, *x.job, o), overdue_s(x, o));
}

}  // namespace troupe::planners
