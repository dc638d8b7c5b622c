#include "planners/search/space/best_plans.hpp"

#include <algorithm>
#include <limits>

namespace troupe::planners {

best_plans::best_plans(const space_problem& p, const space_times& times, const space_room& room,
                       std::size_t wanted)
    : problem_{&p}, times_{&times}, room_{&room}, wanted_{wanted} {}

double best_plans::worst() const {
  return all_.size() < wanted_ ? std::numeric_limits<double>::infinity() : all_.back().score;
}

double best_plans::best() const {
  return all_.empty() ? std::numeric_limits<double>::infinity() : all_.front().score;
}

double best_plans::offer(const space_plan& plan) {
  constexpr double never = std::numeric_limits<double>::infinity();
  const auto gpus = gpus_of(*problem_, plan);
  if ((problem_->max_gpus && gpus > *problem_->max_gpus) || !room_->holds(plan)) return never;
  ++valued_;
  const auto value = times_->value(plan);
  const double score = score_of(*problem_, value, gpus);
  if (!(score < worst())) return score;
  const auto at = std::ranges::upper_bound(all_, score, {}, &valued_plan::score);
  for (auto same = at; same != all_.begin();)
    if ((--same)->score < score)
      break;
    else if (same->plan == plan)
      return score;
  all_.insert(at, {plan, value, score});
  if (all_.size() > wanted_) all_.pop_back();
  return score;
}

}  // namespace troupe::planners
