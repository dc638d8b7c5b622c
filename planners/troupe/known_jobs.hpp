#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
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
  node_share only{};                               // GPUs of one node alone: where it is
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
    if (j.where.size() == 1) only = j.where.front();
  }
  void is_seen_as(const job_view& j) { view = as_contender.job = &j; }
  bool operator==(const known_job&) const = default;
  bool is_of(const job_view& j) const { return number == j.number && number != 0 && id == j.id; }
};

/// The known jobs of one of a snapshot's lists, in its order.
class known_jobs {
 public:
  /// Where none has changed since the last call they are found without a look at the lists.
  /// `make` is called for each new one, and must give the same for equal views.
  template <class Make>
  void follow(const snapshot& s, const job_views& now, Make make) {
    const auto changed = s.changes ? s.changes->since(seen_) : std::nullopt;
    if (changed && changed->size() <= all_.size() / 4 + 8)
      for (const auto id : *changed) update(id, now, make);
    else
      walk(now, make);
    seen_ = s.changes ? s.changes->now() : view_changes::mark{};
    if (!checks_slow_invariants()) return;
    const auto knows = [](const entry& k, const auto& v) {
      return k->view == &v.second && k->number == v.second.number;
    };
    TROUPE_INVARIANT(std::ranges::equal(all_, now, knows),
                     "who follows the changes of a list knows its jobs");
    for (const auto& k : all_)
      TROUPE_INVARIANT(k->number == 0 || make(*k->view) == *k,
                       "views with the same number are equal");
  }
  /// Those of the last call.
  auto all() const {
    return all_ | std::views::transform([](const entry& k) -> const known_job& { return *k; });
  }
  std::size_t size() const { return all_.size(); }
  void clear() {
    all_.clear();
    seen_ = {};
  }

 private:
  using entry = std::unique_ptr<known_job>;  // they are large, and come and go in the middle

  template <class Make>
  void update(job_id id, const job_views& now, Make make) {
    auto at = std::ranges::lower_bound(all_, id, {}, &known_job::id);
    const bool is_known = at != all_.end() && (*at)->id == id;
    const auto j = now.find(id);
    if (j == now.end()) {
      if (is_known) all_.erase(at);
      return;
    }
    if (!is_known || !(*at)->is_of(j->second)) {
      auto k = std::make_unique<known_job>(make(j->second));
      if (is_known)
        *at = std::move(k);
      else
        at = all_.insert(at, std::move(k));
    }
    (*at)->is_seen_as(j->second);
  }

  template <class Make>
  void walk(const job_views& now, Make make) {
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
  }

  std::vector<entry> all_, next_;
  view_changes::mark seen_;
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
