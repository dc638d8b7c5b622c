#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <ranges>
#include <span>

#include "planners/troupe/contender.hpp"
#include "planners/troupe/decision_memory.hpp"

namespace troupe::planners {

/// A job's place in the order in which jobs are served (rule 1): by priority, overdue ones first,
/// then by the work left. The least work first minimizes the average completion time on one server;
/// an overdue job goes before shorter ones, so that a stream of them cannot starve it.
struct service_rank {
  std::int32_t priority = 0;
  bool overdue = false;
  double work = 0;  // seconds of a GPU of the fastest type
  job_id id = 0;
  const contender* who = nullptr;

  service_rank(const contender& x, double now_s, const troupe_options& o)
      : priority{x.priority}, overdue{is_overdue(x, now_s, o)}, work{x.work()}, id{x.id}, who{&x} {}
  /// Is it served later?
  bool operator<(const service_rank& b) const {
    if (priority != b.priority) return priority < b.priority;
    if (overdue != b.overdue) return b.overdue;
    if (work != b.work) return work > b.work;
    return id > b.id;
  }
};

/// Jobs in the order in which they are served. Sorted from the order of the last decision on, which
/// few jobs have left since: what is compared is what has changed places.
class service_order {
 public:
  explicit service_order(const decision_list<service_rank>& ranks) : all_{ranks.get_allocator()} {
    all_.reserve(ranks.size());
    take_last_order(ranks);
    sort();
    for (std::size_t i = 0; i < all_.size(); ++i)
      if (auto* place = all_[i].who->place) place->at = static_cast<std::uint32_t>(i);
  }
  std::size_t size() const { return all_.size(); }
  const contender& at(std::size_t i) const { return *all_[i].who; }
  /// All of them, and those from the i-th on.
  std::span<const service_rank> ranks() const { return all_; }
  auto from(std::size_t i) const {
    return ranks().subspan(i) | std::views::transform(&service_rank::who);
  }

 private:
  static bool is_before(const service_rank& a, const service_rank& b) { return b < a; }

  /// Those whose places are known in the order of these, then the others. Places of jobs that came
  /// from different decisions may be the same.
  void take_last_order(const decision_list<service_rank>& ranks) {
    constexpr auto empty = std::numeric_limits<std::size_t>::max();
    decision_list<std::size_t> at{2 * ranks.size() + 16, empty, ranks.get_allocator()};
    decision_list<std::size_t> others{ranks.get_allocator()};
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto* place = ranks[i].who->place;
      if (place && place->at < at.size() && at[place->at] == empty)
        at[place->at] = i;
      else
        others.push_back(i);
    }
    for (const auto i : at)
      if (i != empty) all_.push_back(ranks[i]);
    for (const auto i : others) all_.push_back(ranks[i]);
  }

  /// By insertion, unless too many have changed places for that.
  void sort() {
    auto left = 16 * all_.size();  // jobs that are passed
    for (auto next = all_.begin(); next != all_.end(); ++next) {
      if (next == all_.begin() || !is_before(*next, *(next - 1))) continue;
      const auto to = std::upper_bound(all_.begin(), next, *next, is_before);
      const auto passed = static_cast<std::size_t>(next - to);
      if (passed > left) return std::sort(all_.begin(), all_.end(), is_before);
      left -= passed;
      std::rotate(to, next, next + 1);
    }
  }

  decision_list<service_rank> all_;
};

}  // namespace troupe::planners
