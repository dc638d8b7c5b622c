#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

/// Jobs in the order in which they are served. A heap whose front is sorted only as far as it is
/// read: GPUs are gone long before a long queue is.
class service_order {
 public:
  explicit service_order(const decision_list<service_rank>& ranks)
      : all_{ranks, ranks.get_allocator()} {
    std::make_heap(all_.begin(), all_.end());
    heap_size_ = all_.size();
  }
  std::size_t size() const { return all_.size(); }
  const contender& at(std::size_t i) {
    const auto position = all_.size() - i - 1;
    for (; heap_size_ > position; --heap_size_)
      std::pop_heap(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(heap_size_));
    return *all_[position].who;
  }
  /// Those from the i-th on, in any order.
  auto from(std::size_t i) const {
    return std::span{all_}.first(all_.size() - i) | std::views::transform(&service_rank::who);
  }

 private:
  decision_list<service_rank> all_;
  std::size_t heap_size_ = 0;  // elements behind it are sorted, the first job last
};

}  // namespace troupe::planners
