#include "actors/control/status/merge_explainer.hpp"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/control/ledger/unions.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/folds.hpp"
#include "planners/cluster/unions.hpp"

namespace troupe::actors {

namespace {

using known_plans = std::map<job_id, plans_reply>;

/// The seconds that a job has left, by its fastest plan; 0: no plan is known.
double duration_s(const job_record& j, const known_plans& plans) {
  const auto* made = find_in(plans, j.id);
  if (!made || !made->plans) return 0;
  const double samples_per_s = max_of(*made->plans, 0.0, &plan::samples_per_s);
  const auto left = j.spec->iterations - std::min(j.spec->iterations, j.progress.iterations_done);
  return samples_per_s > 0 ? static_cast<double>(left) * j.spec->global_batch / samples_per_s : 0;
}

planners::merge_job merge_job_of(const job_record& j, const known_plans& plans) {
  auto m = planners::merge_job_of(j.id, *j.spec, j.owner, j.history.alone);
  m.duration_s = duration_s(j, plans);
  return m;
}

merge_view view_of_pair(planners::merge_job a, planners::merge_job b,
                        const planners::merge_rules& rules) {
  merge_view v{to_string(a.kind), {b.id}, planners::similarity_of(a.card, b.card), {}, {}};
  if (a.duration_s > 0 && b.duration_s > 0)
    v.duration_ratio = planners::ratio_of(a, b);
  else
    a.duration_s = b.duration_s = 1;  // the rule needs some; that for durations does not apply
  v.why_not = planners::why_not_merged(a, b, rules);
  return v;
}

/// The smallest similarity and the largest ratio among a member and the others.
merge_view view_of_member(const ledger& book, const job_record& j, const known_plans& plans) {
  merge_view all{to_string(book.job(*j.in)->members->kind), {}, {}, {}, {}};
  const auto own = merge_job_of(j, plans);
  for (const auto id : merged_with(book, j)) {
    const auto pair = view_of_pair(own, merge_job_of(*book.job(id), plans), {});
    all.with.push_back(id);
    all.similarity = std::min(all.similarity.value_or(1), *pair.similarity);
    if (pair.duration_ratio)
      all.duration_ratio = std::max(all.duration_ratio.value_or(1), *pair.duration_ratio);
  }
  return all;
}

/// Those that the job may be merged with first, then by similarity.
merge_view closest_of_waiting(const ledger& book, const job_record& j,
                              const planners::merge_rules& rules, const known_plans& plans) {
  constexpr std::size_t looked_at = 1000;  // bounds the time of one question
  const auto own = merge_job_of(j, plans);
  merge_view closest{to_string(own.kind), {}, {}, {}, "no other job waits"};
  const auto rank = [](const merge_view& v) {
    return std::tuple(!v.why_not.empty(), -v.similarity.value_or(-1));
  };
  std::size_t seen = 0;
  for (const auto& [id, other] : book.jobs()) {
    if (id == j.id || other.state != job_state::waiting || other.suspended || other.members)
      continue;
    if (++seen > looked_at) break;
    auto pair = view_of_pair(own, merge_job_of(other, plans), rules);
    if (rank(pair) < rank(closest)) closest = std::move(pair);
  }
  return closest;
}

}  // namespace

std::optional<merge_view> merge_view_of(const ledger& book, const job_record& j,
                                        const planners::policy& policy, const known_plans& plans) {
  if (j.in) return view_of_member(book, j, plans);
  const auto rules = policy.traits().merges;
  if (!rules || j.state != job_state::waiting || j.suspended) return {};
  return closest_of_waiting(book, j, *rules, plans);
}

}  // namespace troupe::actors
