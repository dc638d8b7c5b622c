#include "planners/search/space/best_plans.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "messages/base/invariant.hpp"

namespace troupe::planners {

bool are_alike(const space_plan& a, const space_plan& b) {
  return a.rows == b.rows && a.firsts == b.firsts && a.groups.size() == b.groups.size() &&
         std::ranges::is_permutation(a.groups, b.groups);
}

best_plans::best_plans(const space_problem& p, const space_times& times, const space_room& room,
                       std::size_t wanted)
    : problem_{&p}, times_{&times}, room_{&room}, wanted_{wanted} {}

double best_plans::worst() const {
  return all_.size() < wanted_ ? std::numeric_limits<double>::infinity() : all_.back().score;
}

double best_plans::best() const {
  return all_.empty() ? std::numeric_limits<double>::infinity() : all_.front().score;
}

/// Its slowest pipeline by itself, and the longest end that one of its stages needs.
double best_plans::score_floor(const space_plan& plan, std::uint32_t gpus) const {
  double line_s = 0, tail_s = 0, hour = 0;
  const auto pipelines = plan.pipelines();
  for (const auto& g : plan.groups) {
    line_s = std::max(line_s, times_->line_s({plan.rows, plan.firsts, g.seats}, g.microbatches));
    for (std::uint32_t i = 0; i < plan.stages(); ++i) {
      const auto& c = problem_->classes[g.seats[i].cls];
      const auto end = i + 1 < plan.stages() ? plan.firsts[i + 1] : problem_->pieces;
      hour += g.pipelines * c.tensor * problem_->kinds[c.kind].price_per_hour;
      if (line_s < std::numeric_limits<double>::infinity())
        tail_s = std::max(tail_s, times_->tail_floor_s(plan.rows, g.seats[i].cls, plan.firsts[i],
                                                       end - plan.firsts[i], pipelines));
    }
  }
  const double seconds = (line_s + tail_s) * (1 - 1e-9);
  return score_of(*problem_, {seconds, seconds * hour / 3600}, gpus);
}

double best_plans::offer(const space_plan& plan, double below) {
  constexpr double never = std::numeric_limits<double>::infinity();
  TROUPE_INVARIANT(is_cut(*problem_, plan.firsts),
                   "every stage of a plan has a piece of the model");
  const auto gpus = gpus_of(*problem_, plan);
  if ((problem_->max_gpus && gpus > *problem_->max_gpus) || !room_->holds(plan)) return never;
  const auto units = times_->units_of(plan);
  units_ += 100 + 40 * plan.groups.size() * plan.firsts.size();
  if (const double floor = score_floor(plan, gpus); !(floor < std::min(worst(), below)))
    return floor;
  constexpr std::uint64_t long_units = 5'000;
  if (units > long_units)
    if (const auto known = scores_.find(plan); known != scores_.end()) return known->second;
  units_ += units;
  ++valued_;
  const auto value = times_->value(plan);
  const double score = score_of(*problem_, value, gpus);
  if (units > long_units) scores_.emplace(plan, score);
  const valued_plan valued{plan, value, score};
  if (value.seconds < never) {
    auto& best = shapes_[shape_of(plan)];
    // The fastest plan of a shape is its best by every goal, but for traffic.
    if (score < best.score || (best.score == never && value.seconds < best.value.seconds))
      best = valued;
  }
  add(valued);
  return score;
}

best_plans::shape best_plans::shape_of(const space_plan& plan) {
  std::vector<std::uint32_t> classes;
  for (const auto& g : plan.groups)
    for (const auto& s : g.seats) classes.push_back(s.cls);
  std::ranges::sort(classes);
  return {plan.rows, plan.pipelines(), std::move(classes)};
}

std::vector<valued_plan> best_plans::of_shapes(std::size_t wanted) const {
  std::vector<valued_plan> all;
  for (const auto& [of, v] : shapes_)
    if (v.score < std::numeric_limits<double>::infinity()) all.push_back(v);
  std::ranges::stable_sort(all, {}, &valued_plan::score);
  if (all.size() > wanted) all.resize(wanted);
  return all;
}

std::vector<valued_plan> best_plans::near_limits(std::size_t wanted) const {
  constexpr double too_slow = 1.15, too_dear = 1.05;
  std::vector<valued_plan> all;
  if (problem_->goal == space_goal::fastest || !problem_->max_s) return all;
  const auto cost = [&](const valued_plan& v) {
    return problem_->goal == space_goal::cheapest ? v.value.dollars
                                                  : v.value.seconds * gpus_of(*problem_, v.plan);
  };
  for (const auto& [of, v] : shapes_)
    if (v.value.seconds < too_slow * *problem_->max_s && cost(v) < too_dear * best())
      all.push_back(v);
  std::ranges::stable_sort(all, {}, cost);
  if (all.size() > wanted) all.resize(wanted);
  return all;
}

// Orders of the same groups have nearly equal scores: they would take the places of other plans.
void best_plans::add(const valued_plan& v) {
  if (!(v.score < worst())) return;
  const auto same = std::ranges::find_if(
      all_, [&](const valued_plan& other) { return are_alike(other.plan, v.plan); });
  if (same != all_.end()) {
    if (same->score <= v.score) return;
    all_.erase(same);
  }
  all_.insert(std::ranges::upper_bound(all_, v.score, {}, &valued_plan::score), v);
  if (all_.size() > wanted_) all_.pop_back();
}

}  // namespace troupe::planners
