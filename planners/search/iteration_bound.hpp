#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "planners/search/stage_table.hpp"

// How short an iteration of a set of stages can be, whatever their order and cut is
// (docs/planners/plan_search.md).

namespace troupe::planners {

/// What no order and no cut of a set of stages undercuts, in a pipeline of `stages` stages.
class iteration_bound {
 public:
  /// Between stages, and among the peers of all stages of a pipeline together.
  struct transfers {
    double min_send_s = 0, max_send_s = 0;
    double min_between_nodes_s = 0;    // of a send: no less than min_send_s
    std::uint32_t stages_of_node = 1;  // of one pipeline, at most
    double sums_s = 0;                 // of gradients, at least
    double card_s = 0;                 // a send of a stage's own card, at least; 0: not counted
    bool trips = false;                // some begin at the stage behind: they are counted
  };
  /// `table` is kept.
  iteration_bound(const stage_table& table, std::uint32_t microbatches, std::uint32_t stages,
                  const transfers& t);

  /// Of so many stages of each type, at least one. O(types). `last_rate`: the most of any type that
  /// could be among them.
  double of(const std::vector<std::uint32_t>& counts) const;
  double of(const std::vector<std::uint32_t>& counts, double last_rate) const;
  /// The same, for a transformer cut into whole pieces: more, and dearer to find.
  double in_pieces(const std::vector<std::uint32_t>& counts) const;
  /// Has every type with less through_s() than another no less rate()?
  bool ordered() const { return ordered_; }

  // An iteration takes S, all that a micro-batch takes on its way to the last stage and back, and
  // what the slowest stage does beyond that.
  double work() const { return work_; }        // forward FLOPs of a sample
  double sends_s() const { return sends_s_; }  // of S
  /// Of S, at least, of all sends among so many stages in a row: nodes end between some of them.
  double sends_s(std::uint32_t stages) const {
    const double between = (stages - 1) / sends_.stages_of_node;
    return 2 * (between * sends_.min_between_nodes_s + (stages - 1 - between) * sends_.min_send_s);
  }
  /// Of what the slowest stage does beyond S, at least, whatever the stages are.
  double min_own_s() const { return min_own_s_; }
  /// Of S, for each of a sample's FLOPs on a stage of that type.
  double through_s(std::size_t type) const { return through_s_[type]; }
  /// FLOPs that a stage of that type may have for each second beyond S; the last stage of a
  /// pipeline, which recomputes nothing, may have so many more.
  double rate(std::size_t type) const { return rate_[type]; }
  double last_rate(std::size_t type) const { return last_rate_[type]; }
  /// What the slowest stage does beyond S, at least, because of the rounds of the last `behind` + 1
  /// stages or of more. S is at least `s`, not counting the sends of the stages in front of these.
  double rounds_beyond(double s, std::uint32_t behind, double delay_s = 0) const {
    double own = min_own_s_;
    for (const auto& l : round_limits_)
      if (l.behind >= behind + (l.less_s > 0 ? 1 : 0))
        own = std::max(
            own, (s + sends_s(l.behind - behind + 1) - l.less_s + delay_s / l.rounds) / l.slope);
    return own;
  }
  /// In an iteration of sends_s() + x * work() s or less, for any y <= x the sum of all stages'
  /// rates times what their through_s() is below y is no less than this (last_rate included).
  double min_saving(double x, double y) const {
    double min = y < x ? 0 : 1;
    if (min_own_s_ > 0) min = std::max(min, 1 - (x - y) * work_ / min_own_s_);
    for (const auto& l : round_limits_)
      min = std::max(min,
                     (y * work_ + l.sends_s - (x - y) * work_ * l.slope) / (x * work_ + l.sends_s));
    return min;
  }
  /// Types, the least through_s() first.
  const std::vector<std::size_t>& fastest() const { return fastest_; }

 private:
  double tail_s(double own_s) const {
    return own_s < hidden_below_s_ ? tail_slope_ * (hidden_below_s_ - own_s) : 0;
  }

  /// The rounds of some of the last stages limit what all may have of S, without sends: to `slope`
  /// for each second of the slowest stage's own, less `sends_s`: all sends of these stages but
  /// `less_s`, which is of the first of them and the next one.
  struct round_limit {
    double slope = 0, sends_s = 0, less_s = 0, rounds = 1;
    std::uint32_t behind = 0;  // the first of them
  };
  template <class Costs>
  double own_s(const Costs& k, std::uint32_t behind) const;
  double last_rate(const std::vector<std::uint32_t>& counts) const;
  double min_own_s(const std::vector<std::uint32_t>& counts, double last_rate) const;
  void add_round_limits(const stage_table& table);
  void add_round_limit(double rounds, double shorter, double max, double others,
                       std::uint32_t behind);
  std::uint32_t max_pieces(const std::vector<std::uint32_t>& counts, double own_s) const;
  double from(const std::vector<std::uint32_t>& counts, double last_rate, double min_own_s) const;
  double total_s(const std::vector<std::uint32_t>& counts, double last_rate, double own_s) const;

  const stage_table* table_;
  transfers sends_;
  double work_ = 0, sends_s_ = 0;
  std::uint32_t microbatches_ = 1, stages_ = 1;
  std::vector<round_limit> round_limits_;
  double min_own_s_ = 0;  // the rounds of sends alone, or what passes a card
  // Sums that backwards do not hide: none from such an own_s of the slowest stage on.
  double hidden_below_s_ = 0, tail_slope_ = 0;
  std::vector<double> through_s_, rate_, last_rate_;
  std::vector<std::size_t> fastest_;
  bool ordered_ = true;
};

}  // namespace troupe::planners
