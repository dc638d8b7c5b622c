#include "planners/search/space/space_search.hpp"

#include <algorithm>
#include <utility>

#include "messages/base/invariant.hpp"
#include "planners/search/space/alike_search.hpp"
#include "planners/search/space/kind_search.hpp"
#include "planners/search/space/small_plans.hpp"

namespace troupe::planners {

namespace {

// The more are kept, the more lines are valued whose floors are better than the worst of them; and
// the more cuts are tried with several kinds.
constexpr std::size_t kept_alike = 16, kept_plans = 64;
// Plans whose variants are tried.
constexpr std::size_t varied_plans = 8, nearly_kept = 32;
// Steps for plans of several kinds, for each type of GPU, at least.
constexpr std::uint64_t units_a_kind = 10'000'000;

space_result finished(space_result out, const best_plans& best, std::size_t wanted,
                      const planning_budget& budget) {
  out.plans = best.all();
  if (out.plans.size() > wanted) out.plans.resize(wanted);
  out.valued += best.valued();
  out.complete = out.complete && !budget.exhausted();
  return out;
}

/// Values all plans, if there are few enough of them for what is left of the budget.
bool value_all(const space_problem& p, const space_times& times, const space_room& room,
               best_plans& best, planning_budget& budget) {
  constexpr std::uint64_t units_each = 200;
  if (!value_all_plans(p, times, room, std::min(p.exact_plans, budget.left() / units_each), best))
    return false;
  budget.spend(units_each * best.valued());
  return true;
}

/// Offers the variants of these plans.
void try_variants(const plan_variants& variants, const std::vector<valued_plan>& of,
                  best_plans& best, planning_budget& budget) {
  if (!variants) return;
  for (const auto& v : of) {
    for (const auto& x : variants(v, budget)) {
      const auto before = best.units();
      best.offer(x);
      budget.spend(best.units() - before);
    }
    if (budget.exhausted()) return;
  }
}

}  // namespace

// A larger space than `alike` begins with what is best there, by the same steps: so it is never
// worse, with any budget. Then pipelines of one kind with shares of their own, then several kinds.
space_result search_space(const space_problem& p, const space_times& times, std::size_t wanted,
                          planning_budget& budget, const plan_variants& variants,
                          const std::vector<space_plan>& seeds) {
  space_result out;
  const auto given = budget.left();
  const space_room room{p};
  floor_table floors{p, times, room};
  const bool larger = p.space.several_kinds || p.space.own_shares;
  best_plans best{p, times, room, std::max(wanted, larger ? kept_plans : kept_alike)};
  out.exact = value_all(p, times, room, best, budget);
  if (out.exact) return finished(std::move(out), best, wanted, budget);
  auto one_kind = p;
  one_kind.space.several_kinds = false;
  auto alike = one_kind;
  alike.space.own_shares = false;
  const auto& alike_times = times.of_alike();
  best_plans best_alike{alike, alike_times, room, std::max(wanted, kept_alike)};
  // A fifth of the budget is for variants.
  auto searched = budget.part(given / 5 * 4), varied = budget.part(given / 5);
  alike_search first{alike, alike_times, floors, room, best_alike, searched};
  if (!larger || !value_all(alike, alike_times, room, best_alike, budget)) {
    for (const auto& seed : seeds) best_alike.offer(seed);
    first.run();
    try_variants(variants, best_alike.of_shapes(varied_plans), best_alike, varied);
    try_variants(variants, best_alike.near_limits(nearly_kept), best_alike, varied);
    first.improve();
    out.complete = !searched.exhausted();
    budget.charge(searched);
    budget.charge(varied);
  }
  out.valued = best_alike.valued();
  for (const auto& v : best_alike.all()) best.add(v);
  alike_search second{one_kind, alike_times, floors, room, best, budget};
  const auto* found = &first;
  if (p.space.own_shares && !budget.exhausted()) {
    first.cuts().empty() ? second.run() : second.run(first.cuts());
    found = &second;
  }
  if (p.space.several_kinds && !budget.exhausted()) {
    // Several kinds get a quarter of the steps that one kind took, or few.
    const auto before = budget.left();
    planning_budget part{
        std::min(before, std::max((given - before) / 4, units_a_kind * p.kinds.size()))};
    const auto units = part.left();
    kind_search kinds{floors, room, best, part};
    kinds.run(*found);
    budget.spend(units - part.left());
  }
  auto in_groups = best.all();
  std::erase_if(in_groups, [](const valued_plan& v) { return v.plan.groups.size() == 1; });
  if (in_groups.size() > varied_plans) in_groups.resize(varied_plans);
  if (larger) try_variants(variants, in_groups, best, budget);
  TROUPE_INVARIANT(best.best() <= best_alike.best(),
                   "no space has a worse plan than the pipelines that are alike in it");
  out.cuts = found->cuts().size();
  return finished(std::move(out), best, wanted, budget);
}

}  // namespace troupe::planners
