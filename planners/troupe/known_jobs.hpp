#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "messages/base/invariant.hpp"
#include "planners/cluster/snapshot.hpp"
#include "planners/policy/progress.hpp"
#include "planners/troupe/contender.hpp"

// Facts of jobs that decisions need and that do not change between two of them. An entry counts
// only for a view of the same number, or the same arrival: nothing depends on what was asked
// before. Files and plans are held, so that their addresses stay their own.

namespace troupe::planners {

struct known_job {
  job_id id = 0;
  std::uint64_t number = 0;  // of the view; 0: the entry is made anew for each decision
  const job_view* view = nullptr;
  bool fixed = false;       // it runs to its end where it starts
  bool may_change = false;  // it may be stopped, or get other GPUs
  bool never = false;       // while it waits: no plan can ever be placed (why_never)
  bool resumable = false;
  std::uint32_t gpus = 0;  // that it has
  double submitted_s = 0;
  double settled_s = 0;    // see settled_s()
  double start_end_s = 0;  // of its present start
  contender as_contender;  // of one that is not fixed, but for what depends on the time
  job_pace pace;           // likewise
  std::shared_ptr<const std::vector<plan>> plans;  // of its table
  mutable last_place place;

  explicit known_job(const job_view& j)
      : id{j.id},
        number{j.number},
        view{&j},
        resumable{j.facts().resumable},
        gpus{total_gpus(j.where)},
        submitted_s{j.submitted_s},
        plans{j.plans} {
    as_contender.job = &j;
  }
  void is_seen_as(const job_view& j) { view = as_contender.job = &j; }
  bool operator==(const known_job&) const = default;
  bool is_of(const job_view& j) const { return number == j.number && number != 0 && id == j.id; }
};

/// The known jobs of one of a snapshot's lists, in its order.
class known_jobs {
 public:
  /// An entry for each of the jobs; `make` is called for a new one.
  template <class Make>
  void follow(const job_views& now, Make make) {
    next_.clear();
    auto old = all_.begin();
    for (const auto& [id, j] : now) {
      while (old != all_.end() && (*old)->id < id) ++old;
      const bool same = old != all_.end() && (*old)->is_of(j);
      next_.push_back(same ? std::move(*old++) : std::make_unique<known_job>(make(j)));
      next_.back()->is_seen_as(j);
    }
    all_.swap(next_);
    next_.clear();
    if (checks_slow_invariants())
      for (const auto& k : all_)
        TROUPE_INVARIANT(k->number == 0 || make(*k->view) == *k,
                         "views with the same number are equal");
  }
  /// Those of the last call.
  auto all() const {
    return all_ | std::views::transform([](const entry& k) -> const known_job& { return *k; });
  }
  std::size_t size() const { return all_.size(); }
  void clear() { all_.clear(); }

 private:
  using entry = std::unique_ptr<known_job>;  // they are large, and come and go in the middle

  std::vector<entry> all_, next_;
};

struct known_arrival {
  double at_s = 0;
  std::shared_ptr<const job_spec> spec;
  std::shared_ptr<const std::vector<plan>> plans;
  double cluster_s = 0;  // that all GPUs together need for it; 0: unknown

  bool is_of(const recent_arrival& a) const {
    return at_s == a.at_s && spec == a.spec && plans == a.plans;
  }
};

class known_arrivals {
 public:
  /// As known_jobs::follow: old ones leave at the front, and new ones come at the end.
  template <class Make>
  const std::vector<known_arrival>& follow(std::span<const recent_arrival> now, Make make) {
    auto first = all_.begin();
    while (first != all_.end() && (now.empty() || !first->is_of(now.front()))) ++first;
    all_.erase(all_.begin(), first);
    std::size_t same = 0;
    while (same < all_.size() && same < now.size() && all_[same].is_of(now[same])) ++same;
    all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(same), all_.end());
    for (; same < now.size(); ++same) all_.push_back(make(now[same]));
    return all_;
  }
  void clear() { all_.clear(); }

 private:
  std::vector<known_arrival> all_;
};

}  // namespace troupe::planners
