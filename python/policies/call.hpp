#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "messages/base/random.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/policy/policy.hpp"

namespace troupe::planners::python {

/// One call of a policy. Objects in Python refer to the snapshot itself, which is gone afterwards,
/// so that each of them asks here first; a policy may have kept one.
class call {
 public:
  call(const snapshot& s, random_source& random)
      : snapshot_{&s}, random_{&random}, waiting_{all_in_order(s.waiting)} {}

  /// Throws if the call has ended.
  const snapshot& now() const {
    if (snapshot_ == nullptr)
      throw std::runtime_error(
          "this object is valid during one call of the policy, which has ended");
    return *snapshot_;
  }
  random_source& random() const { return now(), *random_; }
  /// GPUs that are idle after the decisions so far.
  const idle_index& idle() const { return idle_ ? *idle_ : now().idle; }
  const std::vector<const job_view*>& waiting() const { return waiting_; }

  /// A start takes GPUs, a stop gives those of the job back, a move does both. Precondition: the
  /// decision names nodes of the cluster.
  void count(const decision& d);
  /// Values that are made for Python live as long as the snapshot.
  const allocation* keep(allocation where) { return &allocations_.emplace_back(std::move(where)); }
  const std::vector<plan>* keep(std::vector<plan> plans) {
    return &plans_.emplace_back(std::move(plans));
  }
  void end() { snapshot_ = nullptr; }

 private:
  const snapshot* snapshot_;
  random_source* random_;
  std::vector<const job_view*> waiting_;
  std::optional<idle_index> idle_;  // copied at the first change
  std::deque<allocation> allocations_;
  std::deque<std::vector<plan>> plans_;
};

/// A value of the snapshot, or one that the call keeps.
template <class T>
struct view {
  std::shared_ptr<call> of;
  const T* at = nullptr;

  const T& operator*() const { return of->now(), *at; }
  const T* operator->() const { return &**this; }
};

/// A view of something inside of a value.
template <class T, class U>
view<T> inside(const view<U>& outer, const T& value) {
  return {outer.of, &value};
}

}  // namespace troupe::planners::python
