#include "actors/control/ledger/unions.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "messages/base/folds.hpp"
#include "messages/base/refuse.hpp"
#include "planners/cluster/unions.hpp"

namespace troupe::actors {

namespace {

std::vector<member_work> work_left(const std::vector<const job_record*>& members) {
  return mapped(members, [](const job_record* j) {
    return member_work{
        j->spec->iterations - std::min(j->spec->iterations, j->progress.iterations_done),
        j->spec->global_batch};
  });
}

}  // namespace

expected<void> may_run_as_one(const std::vector<const job_record*>& members, merge_kind kind) {
  const auto jobs = mapped(members, [](const job_record* j) {
    return planners::merge_job_of(j->id, *j->spec, j->owner, j->history.alone);
  });
  for (std::size_t b = 0; b < jobs.size(); ++b) {
    if (jobs[b].kind != kind)
      return refuse(reason::kind::invalid, "job {} may be merged as {} only", jobs[b].id,
                    to_string(jobs[b].kind));
    for (std::size_t a = 0; a < b; ++a)
      if (planners::must_run_apart(jobs[a], jobs[b]) != planners::merge_obstacle::none)
        return refuse(reason::kind::invalid, "jobs {} and {} must run apart: {}", jobs[a].id,
                      jobs[b].id, planners::why_not_merged(jobs[a], jobs[b]));
  }
  return {};
}

job_union union_of(const std::vector<const job_record*>& members, merge_kind kind) {
  TROUPE_INVARIANT(std::ranges::is_sorted(members, {}, &job_record::id),
                   "the members of a union are in the order of their numbers");
  return {kind, mapped(members, [](const auto* j) { return j->id; }), work_left(members)};
}

job_spec spec_of_union(const std::vector<const job_record*>& members, merge_kind kind) {
  TROUPE_INVARIANT(members.size() >= 2, "a union is made of two jobs at least");
  job_spec spec = *members.front()->spec;
  spec.name =
      fmt::format("{}", fmt::join(mapped(members, [](const auto* j) { return j->id; }), "+"));
  spec.iterations = std::max<std::uint64_t>(1, union_iterations(kind, work_left(members)));
  spec.priority = max_of(members, spec.priority, [](const auto* j) { return j->spec->priority; });
  return spec;
}

std::vector<job_id> merged_with(const ledger& book, const job_record& j) {
  std::vector<job_id> others;
  if (!j.in) return others;
  for (const auto* m : book.members_of(*book.job(*j.in)))
    if (m->id != j.id) others.push_back(m->id);
  return others;
}

std::string merged_with_text(const ledger& book, const job_record& j) {
  const auto others = merged_with(book, j);
  return others.empty() ? "" : fmt::format("merged with {}", fmt::join(others, ", "));
}

}  // namespace troupe::actors
