#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "planners/cluster/gpu_pools.hpp"
#include "planners/troupe/change_bounds.hpp"
#include "planners/troupe/contender.hpp"
#include "planners/troupe/decision_memory.hpp"
#include "planners/troupe/pool_capacity.hpp"
#include "planners/troupe/service_order.hpp"

namespace troupe::planners {

/// One way to run a contender. Apart from its plan, since a decision reads each of these several
/// times, for every job.
struct possible_run {
  double time_s = 0;  // to the job's end
  double weight = 0;
  std::uint32_t pool = 0, gpus = 0;
};

/// The facts that both assignments of a decision start from, by contender.
class decision_facts {
 public:
  decision_facts(const std::vector<contender>& contenders, const std::vector<gpu_pool>& pools,
                 const free_gpus& free, double now_s, const troupe_options& o)
      : o_{o}, contenders_{contenders}, now_s_{now_s} {
    ranks_.reserve(contenders.size());
    settling_.reserve(contenders.size());
    begin_.assign(contenders.size(), not_made);
    std::size_t options = 0;
    for (const auto& x : contenders) {
      ranks_.emplace_back(x, now_s, o);
      settling_.push_back(is_settling(x, now_s));
      options += x.table->figures.size();
    }
    runs_.reserve(options);  // spans of it stay valid
    rooms_.reserve(pools.size());
    for (const auto& p : pools) rooms_.emplace_back(p, free);
  }

  double now_s() const { return now_s_; }
  std::size_t index(const contender& x) const {
    return static_cast<std::size_t>(&x - contenders_.data());
  }
  std::size_t contenders() const { return ranks_.size(); }
  const decision_list<service_rank>& ranks() const { return ranks_; }
  std::pmr::memory_resource* memory() const { return memory_.get(); }
  bool is_settling_now(const contender& x) const { return settling_[index(x)]; }
  /// Its options' runs, in their order. Made when they are first asked for: nobody asks for those
  /// of jobs that are left alone, and of those that wait when the GPUs are gone.
  std::span<const possible_run> runs(const contender& x) const {
    auto& begin = begin_[index(x)];
    if (begin == not_made) begin = add_runs(x);
    return std::span{runs_}.subspan(begin, x.table->figures.size());
  }
  const std::vector<pool_capacity>& rooms() const { return rooms_; }
  /// By pool. Made when a job first asks whether to wait for them.
  const std::vector<release_times>& releases() const {
    if (releases_.empty()) add_releases();
    return releases_;
  }

 private:
  std::size_t add_runs(const contender& x) const {
    const auto begin = runs_.size();
    for (std::size_t i = 0; i < x.table->figures.size(); ++i) {
      const auto& f = x.table->figures[i];
      runs_.push_back({time_with(x, i, o_), f.weight, f.pool, f.gpus});
    }
    return begin;
  }

  // Ends of unknown lengths are not known.
  void add_releases() const {
    releases_.resize(rooms_.size());
    for (const auto& x : contenders_) {
      if (!x.present || x.assumed_work > 0) continue;
      const auto& f = x.table->figures[*x.present];
      releases_[f.pool].add(time_with(x, *x.present, o_), f.gpus);
    }
    for (auto& r : releases_) r.sort();
  }

  const troupe_options& o_;
  const std::vector<contender>& contenders_;
  double now_s_;
  mutable decision_memory memory_;
  decision_list<service_rank> ranks_{memory()};
  decision_list<char> settling_{memory()};
  static constexpr auto not_made = std::numeric_limits<std::size_t>::max();
  mutable decision_list<possible_run> runs_{memory()};
  mutable decision_list<std::size_t> begin_{memory()};  // of each contender's
  std::vector<pool_capacity> rooms_;
  mutable std::vector<release_times> releases_;
};

}  // namespace troupe::planners
