#pragma once

#include <cstdint>
#include <vector>

#include "planners/search/space/space_problem.hpp"

namespace troupe::planners {

/// A pipeline by itself: its cut and its GPUs, for micro-batches of so many samples.
struct space_line {
  std::uint32_t rows = 1;
  std::vector<std::uint32_t> firsts;
  std::vector<space_seat> seats;
};

/// Where the search takes its times from: the product's are those of the cost model
/// (search/job_space/cost_model_times.hpp), tests have others, so that the quality of the search
/// and that of the estimate are tested apart. `value` decides; the others have to agree with it as
/// they say. Infinite: it cannot be, for want of memory. All are pure.
class space_times {
 public:
  virtual ~space_times() = default;

  /// A stage's part of its line at least, wherever it is and whatever its neighbours are: of the
  /// way of one micro-batch through the pipeline and back, and to what every further one takes. Of
  /// the latter it may have done `early_s` before the first micro-batch returns.
  struct stage_floor {
    double way_s = 0, step_s = 0, early_s = 0;

    bool operator==(const stage_floor&) const = default;
  };
  /// The floor of `count` pieces from `first` on; it is the first stage if that is 0, and the last
  /// one if `behind` is 0.
  virtual stage_floor floor_of(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                               std::uint32_t count, std::uint32_t behind) const = 0;
  /// Seconds that the end of an iteration of `pipelines` pipelines or more takes at least, sums and
  /// updates, if one of them has such a stage.
  virtual double tail_floor_s(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                              std::uint32_t count, std::uint32_t pipelines) const = 0;
  /// A hop's addition to the floors of the stage on one side of it if it leaves the stage's node:
  /// floor_of has the cheapest hop. Every stage behind this one adds `early_s` to what it may have
  /// done early. An infinite way: no hop leaves a node.
  struct hop_floor {
    double way_s = 0, step_s = 0, early_s = 0;

    bool operator==(const hop_floor&) const = default;
  };
  /// `to_next`: the hop to the stage behind; else to the one in front.
  virtual hop_floor leaving_floor(std::uint32_t /*rows*/, std::uint32_t /*cls*/,
                                  bool /*to_next*/) const {
    return {};
  }
  /// For a stage on its line's first node, the node of its first stage: with 2 (1 - h / n) of
  /// `card_s` for n pipelines, h of which may have such a stage on the node, all such stages' sums
  /// follow each other over the node's card, from the last backward of the last of these stages
  /// on; after these the line's last backward is `hidden_s` of each of the others away, at most.
  /// The first stage then has its update.
  /// On the line's last node the same begins with the last backward of its last stage, after which
  /// no more than the way, but for `forward_s` of each stage and all of the last one's, follows.
  struct node_sum {
    double card_s = 0, hidden_s = 0, update_s = 0, forward_s = 0;
  };
  virtual node_sum node_sum_of(std::uint32_t /*rows*/, std::uint32_t /*cls*/,
                               std::uint32_t /*first*/, std::uint32_t /*count*/) const {
    return {};
  }
  /// A line's iteration of so many micro-batches without sums; grows with them. No plan with such a
  /// pipeline is faster, and for each of its stages the line takes no less than the sum of all
  /// stages' ways and (microbatches - 1) of its steps, less what it may do early, no less than
  /// all of its steps, and no less than the sum of the ways for each round of as many micro-batches
  /// as it has stages, the last one of which may have fewer.
  virtual double line_s(const space_line& line, std::uint32_t microbatches) const = 0;
  virtual space_value value(const space_plan& plan) const = 0;
  /// Times for plans whose pipelines are all alike: of these the floors may be higher.
  virtual const space_times& of_alike() const { return *this; }
  /// The work of value(), in a planning_budget's units.
  virtual std::uint64_t units_of(const space_plan&) const { return 200; }
};

}  // namespace troupe::planners
