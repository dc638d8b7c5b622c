#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "planners/cluster/snapshot.hpp"
#include "planners/troupe/configurations.hpp"

// Facts of jobs that decisions need and that do not change between two of them. Each list is in
// the order of the snapshot's, so that both are walked together, and an entry counts only for a job
// whose file, plans and memory are the same: nothing depends on what was asked before. Files and
// plans are held, so that their addresses stay their own.

namespace troupe::planners {

struct known_job {
  job_id id = 0;
  std::shared_ptr<const job_spec> spec;
  std::shared_ptr<const std::vector<plan>> plans;
  double bytes_floor = 0;
  bool training = false;
  bool fixed = false;                          // it runs to its end where it starts
  bool may_change = false;                     // it may be stopped, or get other GPUs
  const configuration_table* table = nullptr;  // null: nobody has needed it

  explicit known_job(const job_view& j)
      : id{j.id},
        spec{j.spec},
        plans{j.plans},
        bytes_floor{j.history.bytes_floor},
        training{j.training} {}
  bool is_of(const job_view& j) const {
    return id == j.id && spec == j.spec && plans == j.plans &&
           bytes_floor == j.history.bytes_floor && training == j.training;
  }
};

class known_jobs {
 public:
  /// An entry for each of the jobs; `make` is called for a new one.
  template <class Make>
  std::vector<known_job>& follow(const job_views& now, Make make) {
    next_.clear();
    auto at = all_.begin();
    for (const auto& [id, j] : now) {
      while (at != all_.end() && at->id < id) ++at;
      next_.push_back(at != all_.end() && at->is_of(j) ? std::move(*at) : make(j));
    }
    all_.swap(next_);
    return all_;
  }
  void clear() { all_.clear(); }

 private:
  std::vector<known_job> all_, next_;
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
