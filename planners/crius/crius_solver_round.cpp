// crius-solver: all jobs' Cells in one integer program, then counts become nodes. The program knows
// numbers of GPUs per pool but not nodes; a job whose GPUs turn out to be too scattered goes on as
// it was or waits for the next round.

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/crius/crius_round.hpp"
#include "planners/policy/elastic_jobs.hpp"

namespace troupe::planners {

/// Adds waiting jobs to placed_, without GPUs; the first 256 of the queue, which bounds the
/// program.
void crius_round::add_waiting(std::vector<decision>& out) {
  constexpr std::size_t max = 256;  // of the queue, in order
  std::size_t added = 0;
  for (const auto* j : in_order(s_.waiting, has_model)) {
    if (!j->plans || j->plans->empty()) {
      out.push_back(give_up(j->id, why_none(*j)));
      continue;
    }
    if (++added > max) return;
    placed_.push_back({j, options_of(*j), {}, {}, nullptr, true});
  }
}

/// Groups jobs with the same choices, values and present Cell. Values are rounded, so that jobs are
/// alike that differ only in how much they have left to do.
std::vector<crius_round::alike_jobs> crius_round::group_jobs() const {
  using key =
      std::tuple<std::vector<std::tuple<std::uint32_t, std::uint32_t, double>>, std::size_t>;
  std::map<key, std::size_t> group_of;
  std::vector<alike_jobs> groups;
  for (std::size_t i = 0; i < placed_.size(); ++i) {
    const auto& x = placed_[i];
    if (!x.movable || x.options.empty()) continue;
    const bool runs = !x.job->where.empty();
    alike_jobs mine;
    key k;
    for (const auto& o : x.options) {
      const auto gpus = o.how->gpus();
      const bool here = runs && o.pool == x.present.pool && gpus == x.present.gpus;
      if (here) mine.present = mine.choices.size();
      // The restart's share of the remaining time, rounded up to steps of 2 %.
      const double restart = std::ceil(50 * restart_of(s_.cluster, *x.job) / o.run_s) / 50;
      const double cost = runs && !here ? o.value * std::min(1.0, restart) + o_.change_cost : 0;
      mine.choices.push_back({o.pool, gpus, std::max(0.0, o.value - cost)});
      std::get<0>(k).emplace_back(o.pool, gpus, mine.choices.back().value);
    }
    std::get<1>(k) = mine.present;
    const auto [at, fresh] = group_of.emplace(std::move(k), groups.size());
    if (fresh) groups.push_back(std::move(mine));
    groups[at->second].jobs.push_back(i);
  }
  return groups;
}

/// Finds nodes for (job, option) pairs, the largest first. A job that finds none keeps its present
/// ones if they are still free, otherwise it is stopped.
void crius_round::place(std::vector<std::pair<std::size_t, std::size_t>> wishes,
                        std::vector<decision>& out) {
  std::ranges::stable_sort(wishes, std::greater{}, [&](const auto& w) {
    return placed_[w.first].options[w.second].how->gpus();
  });
  std::vector<decision> starts;
  for (const auto& [i, k] : wishes) {
    const auto& x = placed_[i];
    const bool runs = !x.job->where.empty();
    auto where = find(x.options[k], {});
    if (where.empty() && runs && free_.has(x.job->where)) {
      free_.take(x.job->where);
      continue;
    }
    if (where.empty() && runs) out.push_back({decision::kind::stop, x.job->id, {}, {}, {}});
    if (where.empty()) continue;
    free_.take(where);
    const auto what = runs ? decision::kind::move : decision::kind::start;
    starts.push_back({what, x.job->id, *x.options[k].how, std::move(where), {}});
  }
  std::ranges::move(starts, std::back_inserter(out));
}

/// In a group, jobs that keep their present Cell come first, then one after the other the jobs of
/// each choice; those left over are stopped. Stops come before moves and starts, which may need
/// their GPUs.
std::vector<decision> crius_round::solve() && {
  std::vector<decision> out;
  add_waiting(out);
  const auto groups = group_jobs();
  auto capacity = idle_;
  for (const auto& x : placed_)
    if (x.movable && !x.options.empty()) capacity[x.present.pool] += x.present.gpus;
  const auto alike = mapped(groups, [](const alike_jobs& g) {
    alike_choices c{g.choices, static_cast<std::uint32_t>(g.jobs.size()), {}};
    if (g.present != alike_jobs::none) c.present = g.present;
    return c;
  });
  const auto taken = o_.solve(alike, capacity).taken;
  std::vector<std::pair<std::size_t, std::size_t>> wishes;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::size_t next = groups[g].present == alike_jobs::none ? 0 : taken[g][groups[g].present];
    for (std::size_t k = 0; k < taken[g].size(); ++k) {
      if (k == groups[g].present) continue;
      TROUPE_INVARIANT(next + taken[g][k] <= groups[g].jobs.size(),
                       "the program gives a group no more choices than it has jobs");
      for (std::uint32_t n = 0; n < taken[g][k]; ++n)
        wishes.emplace_back(groups[g].jobs[next++], k);
    }
    for (auto i = next; i < groups[g].jobs.size(); ++i) {  // they are given nothing
      const auto& x = placed_[groups[g].jobs[i]];
      if (x.job->where.empty()) continue;
      free_.give_back(x.job->where);
      out.push_back({decision::kind::stop, x.job->id, {}, {}, {}});
    }
  }
  for (const auto& [i, k] : wishes) free_.give_back(placed_[i].job->where);
  place(std::move(wishes), out);
  note_waiting(out);
  return out;
}

}  // namespace troupe::planners
