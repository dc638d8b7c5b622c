#include "planners/titan/merge_candidates.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "messages/domain/work_kind.hpp"
#include "planners/model/model_chain.hpp"

namespace troupe::planners {
namespace {

double ratio_of(const merge_job& a, const merge_job& b) {
  return std::max(a.duration_s, b.duration_s) / std::min(a.duration_s, b.duration_s);
}

// Adapters mix no data: each has its own weights, so that neither cards nor durations matter. A
// member that is done leaves the others.
bool mixes_data(const merge_job& j) {
  return j.kind == merge_kind::shared;
}

// Two jobs that may be one.
struct pair {
  std::uint32_t a = 0, b = 0;  // a < b
  double similarity = 1, ratio = 1;

  auto by_jobs() const { return std::pair(a, b); }
};

using pairs = std::vector<pair>;  // ascending by jobs

// The pairs that either job counts among its closest.
pairs closest_pairs(std::span<const merge_job> jobs, const merge_rules& rules) {
  std::vector<pairs> by_job(jobs.size());
  for (std::uint32_t a = 0; a < jobs.size(); ++a)
    for (std::uint32_t b = a + 1; b < jobs.size(); ++b) {
      if (obstacle_between(jobs[a], jobs[b], rules) != merge_obstacle::none) continue;
      const pair p{a, b, similarity_of(jobs[a].card, jobs[b].card), ratio_of(jobs[a], jobs[b])};
      by_job[a].push_back(p);
      by_job[b].push_back(p);
    }
  pairs out;
  for (std::uint32_t job = 0; job < jobs.size(); ++job) {
    auto& mine = by_job[job];
    const auto rank = [&](const pair& p) {
      return std::tuple(-p.similarity, p.ratio, jobs[p.a == job ? p.b : p.a].id);
    };
    std::ranges::sort(mine, {}, rank);
    if (mine.size() > rules.partners) mine.resize(rules.partners);
    std::ranges::copy(mine, std::back_inserter(out));
  }
  std::ranges::sort(out, {}, &pair::by_jobs);
  const auto repeated = std::ranges::unique(out, {}, &pair::by_jobs);
  out.erase(repeated.begin(), repeated.end());
  return out;
}

const pair* find(const pairs& all, std::uint32_t a, std::uint32_t b) {
  const auto at = std::ranges::lower_bound(all, std::pair(a, b), {}, &pair::by_jobs);
  return at != all.end() && at->by_jobs() == std::pair(a, b) ? &*at : nullptr;
}

// Triples a < b < c of which all three pairs are there: b and c are both partners of a.
void add_triples(const pairs& all, std::vector<merge_candidate>& out) {
  for (auto ab = all.begin(); ab != all.end(); ++ab)
    for (auto ac = std::next(ab); ac != all.end() && ac->a == ab->a; ++ac) {
      const auto* bc = find(all, ab->b, ac->b);
      if (bc == nullptr) continue;
      out.push_back({{ab->a, ab->b, ac->b},
                     std::min({ab->similarity, ac->similarity, bc->similarity}),
                     std::max({ab->ratio, ac->ratio, bc->ratio})});
    }
}

}  // namespace

double similarity_of(std::span<const std::string> a, std::span<const std::string> b) {
  std::size_t both = 0;
  for (const auto& word : a) both += std::ranges::binary_search(b, word);
  const auto either = a.size() + b.size() - both;
  return either == 0 ? 0 : static_cast<double>(both) / static_cast<double>(either);
}

// A union of jobs ends at another time than any of them alone, so that one with a limit of time or
// price is not merged.
merge_job merge_job_of(std::uint64_t id, const job_spec& spec, std::string owner, bool alone) {
  merge_job j;
  j.id = id;
  j.allowed = spec.merge;
  j.can = facts_of(spec).mergeable && !spec.deadline_s && !spec.slo_s && !spec.budget &&
          !spec.time_limit_s;
  j.alone = alone;
  j.kind = spec.merged_as.value_or(merge_kind::shared);
  j.alike = fmt::format("{} of {} parameters", spec.model.name, shape_of(spec.model).parameters);
  if (!spec.required_gpu_type.empty()) j.alike += " on " + spec.required_gpu_type;
  j.owner = std::move(owner);
  j.across_owners = spec.merge_across_owners.value_or(false);
  j.card = spec.dataset_card;
  std::ranges::sort(j.card);
  const auto repeated = std::ranges::unique(j.card);
  j.card.erase(repeated.begin(), repeated.end());
  return j;
}

merge_obstacle must_run_apart(const merge_job& a, const merge_job& b) {
  using enum merge_obstacle;
  if (!a.allowed || !b.allowed) return opted_out;
  if (!a.can || !b.can) return cannot;
  if (a.alone || b.alone) return alone;
  if (a.kind != b.kind) return kind;
  if (a.alike != b.alike) return alike;
  return a.owner != b.owner && !(a.across_owners && b.across_owners) ? owner : none;
}

merge_obstacle obstacle_between(const merge_job& a, const merge_job& b, const merge_rules& rules) {
  using enum merge_obstacle;
  if (const auto apart = must_run_apart(a, b); apart != none || !mixes_data(a)) return apart;
  if (a.card.empty() || b.card.empty()) return no_card;
  if (similarity_of(a.card, b.card) < rules.similarity) return similarity;
  return ratio_of(a, b) > rules.duration_ratio ? duration : none;
}

std::string why_not_merged(const merge_job& a, const merge_job& b, const merge_rules& rules) {
  switch (obstacle_between(a, b, rules)) {
    case merge_obstacle::none:
      break;
    case merge_obstacle::opted_out:
      return fmt::format("job {} has merge: false", a.allowed ? b.id : a.id);
    case merge_obstacle::cannot:
      return fmt::format(
          "job {} is not simulated fine-tuning, or has a deadline_s, slo_s, budget or time_limit_s",
          a.can ? b.id : a.id);
    case merge_obstacle::alone:
      return fmt::format("job {} ran out of memory in a union", a.alone ? a.id : b.id);
    case merge_obstacle::kind:
      return fmt::format("kinds {} and {} differ", to_string(a.kind), to_string(b.kind));
    case merge_obstacle::alike:
      return fmt::format("'{}' and '{}' differ", a.alike, b.alike);
    case merge_obstacle::owner:
      return "they have different owners, who do not both set merge_across_owners";
    case merge_obstacle::no_card:
      return fmt::format("job {} has no dataset_card", a.card.empty() ? a.id : b.id);
    case merge_obstacle::similarity:
      return fmt::format("their cards have a similarity of {:.2f}, below {:.2f}",
                         similarity_of(a.card, b.card), rules.similarity);
    case merge_obstacle::duration:
      return fmt::format("their durations have a ratio of {:.1f}, above {:.1f}", ratio_of(a, b),
                         rules.duration_ratio);
  }
  return {};
}

std::vector<merge_candidate> merge_candidates(std::span<const merge_job> jobs,
                                              const merge_value& value, const merge_rules& rules) {
  const auto all = closest_pairs(jobs, rules);
  std::vector<merge_candidate> out;
  for (const auto& p : all) out.push_back({{p.a, p.b}, p.similarity, p.ratio});
  add_triples(all, out);
  const auto max = std::size_t{rules.per_job} * jobs.size();
  if (out.size() > max) {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t i = 0; i < out.size(); ++i) order.emplace_back(-value(out[i]), i);
    std::ranges::sort(order);
    std::vector<merge_candidate> kept;
    for (std::size_t i = 0; i < max; ++i) kept.push_back(std::move(out[order[i].second]));
    out = std::move(kept);
  }
  std::ranges::sort(out, {}, &merge_candidate::jobs);
  return out;
}

}  // namespace troupe::planners
