#include "actors/control/scheduling/job_views.hpp"

#include <atomic>

#include <fmt/format.h>

#include "actors/control/ledger/elastic_attempts.hpp"
#include "actors/control/ledger/unions.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/invariant.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/plans/shortage.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "planners/policy/placement.hpp"

namespace troupe::actors {

std::optional<planners::reported_progress> reported_progress_of(const job_record& j,
                                                                const progress_report& p) {
  if (p.lease != j.lease || !(p.iteration_s > 0)) return {};
  return planners::reported_progress{p.iteration, p.at_s, p.iteration_s};
}

namespace {

bool has_successor(const ledger& book, const lease_record& l) {
  for (std::size_t i = 0; i < l.ended.size(); ++i)
    for (const auto gpu : l.granted.parts[i].devices)
      if (!l.ended[i] && book.successor(l.granted.parts[i].node, gpu) != 0) return true;
  return false;
}

}  // namespace

std::uint64_t new_view_number() {
  static constinit std::atomic<std::uint64_t> last{0};
  return ++last;
}

planners::job_view view_of(const cluster& c, const job_record& j, const ledger& book,
                           const std::map<job_id, plans_reply>& plans,
                           const std::map<job_id, progress_report>& progress) {
  planners::job_view v;
  v.id = j.id;
  v.number = new_view_number();
  v.spec = j.spec;
  v.submitted_s = j.submitted_s;
  if (const auto* known = find_in(plans, j.id)) {
    v.plans = known->plans;
    v.why = known->why;
  }
  v.training = planners::runs_as_pipelines(*j.spec, v.plans.get());
  v.progress = j.progress;
  v.history = j.history;
  v.owner = j.owner;
  if (j.progress.attempts > 0) {
    v.rows = j.how.rows;
    v.data_parallel = j.how.data_parallel;
    if (j.how.groups) v.groups = *j.how.groups;
  }
  const auto* reported = find_in(progress, j.id);
  v.elastic = record_by_now(book, j, reported);
  if (const auto* l = book.lease_of(j)) {
    TROUPE_INVARIANT(!j.where.empty(), "a job that runs is shown with its GPUs");
    v.started_s = l->granted.at_s;
    v.how = j.how;
    v.where = j.where;
    v.iteration_s = l->granted.iteration_s;
    v.start_s = l->granted.start_s;
    v.followed = has_successor(book, *l);
    if (reported) v.reported = reported_progress_of(j, *reported);
  }
  if (v.elastic || j.spec->program.elastic) {
    const bool had = v.plans && !v.plans->empty();
    v.plans = planners::plans_of_elastic(c, v);
    if (had && v.plans->empty())
      v.why = {reason::kind::infeasible, "`elastic` allows none of its plans on this cluster"};
    v.spec = planners::limits_of_elastic(v);
  }
  return v;
}

reason why_immovable(const ledger& book, job_id job) {
  const auto* j = book.job(job);
  if (!j) return {reason::kind::unknown, fmt::format("no job {}", job)};
  if (is_final(j->state))
    return {reason::kind::invalid, fmt::format("job {} already {}", job, to_string(j->state))};
  if (j->in)
    return {reason::kind::invalid,
            fmt::format("job {} is {}; only jobs that run by themselves can be "
                        "moved",
                        job, merged_with_text(book, *j))};
  if (j->state == job_state::running && !facts_of(*j->spec).pipelines)
    return {reason::kind::invalid,
            fmt::format("job {} is neither a training nor an elastic program; only these can be "
                        "moved",
                        job)};
  return {reason::kind::invalid,
          fmt::format("job {} is not running: it is {}", job, to_string(j->state))};
}

std::string why_waiting_text(const planners::policy& p, const planners::snapshot& now, job_id job,
                             const std::vector<plan>* plans) {
  auto text = p.why_waiting(now, job).text;
  if (plans && text.find(", which is ") == std::string::npos)
    text += planners::unusable_text(now, *plans);
  return text;
}

}  // namespace troupe::actors
