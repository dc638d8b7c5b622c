#include "planners/troupe/contender.hpp"

#include <cmath>

#include "planners/policy/elastic_jobs.hpp"
#include "planners/policy/progress.hpp"

namespace troupe::planners {

double settled_s(const cluster& c, const job_view& j, const troupe_options& o) {
  const double until_s = j.started_s + o.settle_starts * restart_of(c, j);
  const double step_s = o.settle_step * c.settings.restart_s;
  return step_s > 0 ? std::ceil(until_s / step_s) * step_s : until_s;
}

bool is_settling(const cluster& c, const contender& x, double now_s, const troupe_options& o) {
  return x.runs() && now_s < settled_s(c, *x.job, o);
}

bool is_overdue(const job_view& j, double left, double fastest, double now_s,
                const troupe_options& o) {
  const auto& spec = *j.spec;
  const double samples =
      has_known_length(spec) ? static_cast<double>(spec.iterations) * spec.global_batch : left;
  return now_s - j.submitted_s > o.overdue_times * samples / fastest;
}

bool is_overdue(const contender& x, double now_s, const troupe_options& o) {
  return is_overdue(*x.job, x.samples_left, x.table->fastest_samples_per_s, now_s, o);
}

}  // namespace troupe::planners
