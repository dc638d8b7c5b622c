#include "planners/titan/merge_candidates.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace troupe::planners {
namespace {

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
