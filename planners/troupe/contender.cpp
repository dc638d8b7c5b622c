#include "planners/troupe/contender.hpp"

#include <cmath>

#include "messages/domain/work_kind.hpp"
#include "planners/policy/elastic_jobs.hpp"

namespace troupe::planners {

contender contender_of(const cluster& c, const job_view& j, const configuration_table& table,
                       const troupe_options& o) {
  contender x;
  x.job = &j;
  x.table = &table;
  x.id = j.id;
  x.priority = j.spec->priority;
  x.is_running = !j.where.empty();
  x.has_known_length = j.facts().has_known_length;
  x.submitted_s = j.submitted_s;
  x.restart_s = restart_of(c, j);
  if (x.is_running) x.settled_s = settled_s(c, j, o);
  x.whole_samples = static_cast<double>(j.spec->iterations) * j.spec->global_batch;
  return x;
}

double settled_s(const cluster& c, const job_view& j, const troupe_options& o) {
  const double until_s = j.started_s + o.settle_starts * restart_of(c, j);
  const double step_s = o.settle_step * c.settings.restart_s;
  return step_s > 0 ? std::ceil(until_s / step_s) * step_s : until_s;
}

}  // namespace troupe::planners
