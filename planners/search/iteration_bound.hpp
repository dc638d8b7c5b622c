#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "planners/search/stage_table.hpp"

// Lower bounds of an iteration before order and cut are known (docs/planners/plan_search.md, "Lower
// bounds for a set of stages"). An iteration takes S + u: S is a micro-batch's way to the last
// stage and back, u is what the slowest stage adds to it, Y is the part of S from a stage on. W is
// the model's work, the forward FLOPs of a sample. All times are seconds.

namespace troupe::planners {

/// Lower bound on the iteration time over all orders and cuts of a set of stages, for pipelines of
/// one number of stages and micro-batches. It costs O(types) per set, after O(stages * types) once.
class iteration_bound {
 public:
  /// Times of sends between stages; `sums_s` is for the peers of all stages of a pipeline together.
  struct transfers {
    double min_send_s = 0, max_send_s = 0;
    double min_between_nodes_s = 0;    // of a send that leaves its node: no less than min_send_s
    std::uint32_t stages_of_node = 1;  // the most stages of one pipeline on a node
    double sums_s = 0;                 // lower bound of the sums of gradients
    double card_s = 0;   // lower bound of a send over a stage's own card; 0: not counted
    bool trips = false;  // count the chains (3) in which some trips begin at the stage behind
  };
  /// Keeps a reference to `table`.
  iteration_bound(const stage_table& table, std::uint32_t microbatches, std::uint32_t stages,
                  const transfers& t);

  /// The bound for `counts` stages of each type, at least one in all. O(types). `last_rate`: the
  /// largest last_rate() among the types that may be in the set.
  double of(const std::vector<std::uint32_t>& counts) const;
  double of(const std::vector<std::uint32_t>& counts, double last_rate) const;
  /// The same for stages of whole pieces (transformers): larger, but it takes a bisection
  /// over u, each step O(types * log(pieces)).
  double in_pieces(const std::vector<std::uint32_t>& counts) const;
  /// Whether a type with a smaller through_s() never has a smaller rate(): then one order of types
  /// is the fastest in both respects.
  bool ordered() const { return ordered_; }

  double work() const { return work_; }        // W
  double sends_s() const { return sends_s_; }  // part of S: the sends of all stages
  /// Lower bound of the part of S that is sends among `stages` stages in a row, both ways: a node
  /// holds stages_of_node of them, so some of the sends leave their node.
  double sends_s(std::uint32_t stages) const {
    const double between = (stages - 1) / sends_.stages_of_node;
    return 2 * (between * sends_.min_between_nodes_s + (stages - 1 - between) * sends_.min_send_s);
  }
  /// Lower bound of u, whatever the stages are.
  double min_own_s() const { return min_own_s_; }
  /// Seconds of S for each FLOP of W on a stage of that type, at least.
  double through_s(std::size_t type) const { return through_s_[type]; }
  /// FLOPs of W that a stage of that type can have for each second of u, at most. The last stage of
  /// a pipeline recomputes nothing, so it can have `last_rate` more.
  double rate(std::size_t type) const { return rate_[type]; }
  double last_rate(std::size_t type) const { return last_rate_[type]; }
  /// Lower bound of u from the rounds (2) of the last `behind` + 1 stages, or of more of them. `s`:
  /// a lower bound of S without the sends of the stages in front of these. `delay_s`: how much
  /// cards delay the first micro-batch (5).
  double rounds_beyond(double s, std::uint32_t behind, double delay_s = 0) const {
    double own = min_own_s_;
    for (const auto& l : round_limits_)
      if (l.behind >= behind + (l.less_s > 0 ? 1 : 0))
        own = std::max(
            own, (s + sends_s(l.behind - behind + 1) - l.less_s + delay_s / l.rounds) / l.slope);
    return own;
  }
  /// The types by through_s(), fastest first.
  const std::vector<std::size_t>& fastest() const { return fastest_; }

 private:
  /// Sums of gradients that remain after the last backward, if u is `own_s`: the longer the slowest
  /// stage, the more of them earlier stages' backwards hide.
  double tail_s(double own_s) const {
    return own_s < hidden_below_s_ ? tail_slope_ * (hidden_below_s_ - own_s) : 0;
  }

  /// A limit on S by the rounds of the last stages: S without sends is at most slope * u - sends_s.
  /// `sends_s`: the sends of these stages but `less_s`, the part of those between the first of them
  /// and the next one that trips from the stage behind leave out.
  struct round_limit {
    double slope = 0, sends_s = 0, less_s = 0, rounds = 1;
    std::uint32_t behind = 0;  // stages behind the first of them
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
  double min_own_s_ = 0;  // by the rounds of sends alone, and by what passes a card (4)
  // tail_s() is 0 from u = hidden_below_s_ on, and falls by tail_slope_ per second below.
  double hidden_below_s_ = 0, tail_slope_ = 0;
  std::vector<double> through_s_, rate_, last_rate_;
  std::vector<std::size_t> fastest_;
  bool ordered_ = true;
};

}  // namespace troupe::planners
