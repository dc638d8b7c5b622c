#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "planners/cluster/planning_budget.hpp"
#include "planners/search/space/floor_table.hpp"
#include "planners/search/space/joined_paths.hpp"
#include "planners/search/space/space_room.hpp"

namespace troupe::planners {

/// Plans whose seconds are at most `seconds`, with from_pipelines to to_pipelines pipelines, whose
/// tail is from from_s to to_s, and whose price, in the goal's unit, is at most max_price.
struct plan_box {
  static constexpr double unbounded = std::numeric_limits<double>::infinity();

  double seconds = 0;
  std::uint32_t from_pipelines = 1, to_pipelines = 1;
  double from_s = 0, to_s = unbounded;
  double max_price = unbounded;
};

/// Boxes that are not divided further: parts of the seconds, and a ratio of pipelines.
struct smallest_box {
  double tail = 0.01, pipelines = 1.25;
};

/// Shows that boxes have no plan, for one number of rows.
class box_refuter {
 public:
  box_refuter(floor_table& floors, joined_paths& paths, const space_room& room,
              std::size_t rows_index, planning_budget& budget, bool own_shares);

  /// False: it was not shown, or the budget is exhausted. `parts`: how small the boxes are that it
  /// is tried with.
  bool refuted(double seconds, double max_price, const smallest_box& parts);
  /// The same of one box, which is not divided.
  bool refuted_whole(const plan_box& box) {
    return !floors_.possible(rows_index_) || box.from_s >= box.seconds || no_plan(box);
  }
  /// The middle of a box's tail, where there is doubt about it; infinite: it is no longer than that
  /// part of the seconds.
  double middle_tail_s(const plan_box& box, double part);
  std::uint32_t max_pipelines() const { return max_pipelines_; }
  /// Whether paths know which hops leave a node, and nodes' sums: more is refuted, for more work.
  void set_joins(bool joins) {
    // Lines of other paths do more than they can.
    joins_ = joins;
    lines_.clear();
  }

 private:
  static constexpr double unbounded = plan_box::unbounded;

  /// Lines whose longest step is above `below_s` and at most `limit_s`.
  struct step_range {
    double below_s = 0, limit_s = 0;
    double way_s = -1;  // of its lines, the shortest; below 0: not known
    double part = 1;    // by which equal_doubt() was last resolved
  };
  /// A line as the shortest paths find it.
  struct known_line {
    double way_s = 0, step_s = 0;
    double sums_s = 0;        // of the first stage's node, as the shortest path had them
    std::vector<double> use;  // GPUs by kind
    joined_line path;
    bool in_parts = false;  // it is taken to do parts of micro-batches, too
  };

  void set_early();
  bool refuted(const plan_box& box, double longest_tail_s);

  double longest_tail_s();

  /// By place_of(0, first, count) and class.
  const std::vector<double>& tails_of(std::uint32_t pipelines);

  double price_of(std::size_t kind) const {
    return problem_.goal == space_goal::efficient ? 1 : problem_.kinds[kind].price_per_hour;
  }
  double priced(const known_line& l) const {
    double price = 0;
    for (std::size_t k = 0; k < gpus_.size(); ++k) price += l.use[k] * price_of(k);
    return price;
  }
  std::uint32_t share(const plan_box& box) const { return microbatches_ / box.to_pipelines; }
  /// The task of all pipelines together, in the unit of done().
  double wanted(const plan_box& box) const {
    return own_shares_ ? microbatches_ : box.to_pipelines;
  }

  /// The micro-batches that a line can do by the end of a box, at most.
  /// With equal shares: pipelines, one if it does its share.
  double done(const known_line& l, const plan_box& box) const;

  bool no_plan(const plan_box& box);

  /// Prices at which everything costs a little less than there are micro-batches, by the lines that
  /// are known; false: these can do all micro-batches.
  bool set_prices(const plan_box& box, const std::vector<double>& tails,
                  std::vector<double>& gpu_prices, double& pipeline_price);

  bool keeps(const known_line& l, const std::vector<double>& tails, double max_s) const;

  /// The longest that any stage of such a pipeline may have worked before its first micro-batch
  /// returns, if its step is no longer than that.
  double early_s(std::size_t stages, double step_s) const {
    return step_s * early_[std::min(stages, early_.size()) - 1];
  }

  /// Adds a line that does more than it costs for each limit that has one; false: there is none.
  bool add_lines(const plan_box& box, const std::vector<double>& tails,
                 const std::vector<double>& gpu_prices, double pipeline_price);

  struct priced_box {
    const plan_box& box;
    const std::vector<double>& tails;
    const std::vector<double>& gpu_prices;
    double pipeline_price = 0;
  };

  /// Whether a line of this range may do more than it costs: then it is added.
  bool doubt(const priced_box& at, std::size_t index);

  /// The shortest way of a line of a range, whatever its sums.
  double shortest_s(const priced_box& at, std::size_t index);

  /// The doubt is about steps shorter than this line's: those above them and those below are looked
  /// at apart.
  bool doubt_in_parts(const priced_box& at, std::size_t index, known_line line);

  /// The same with equal shares: a line that does its share has a way of at most so long, and by
  /// some worth of the prices costs as much as one pipeline may.
  bool equal_doubt(const priced_box& at, std::size_t index);

  /// Wherever its stages are; with hops that leave their nodes; and with the sums of the first
  /// stage's node, or of the last one's.
  enum class paths_kind : std::uint8_t { apart, joined, first_sums, last_sums };
  /// The smallest cost of a line at a worth of the prices.
  double run(const priced_box& at, const step_range& range, double worth_s, paths_kind kind);
  /// Whether by these paths a line of the range may do more than it costs.
  bool may_be_worth(const priced_box& at, const step_range& range, paths_kind kind);
  /// The number of stages whose cheapest line is the least certain.
  std::uint32_t cheapest_by(const step_range& range) const;
  known_line line_of(joined_line path);
  bool add_if_worth(const priced_box& at, const known_line& l);

  /// The stage with the longest step does no more of them one after the other.
  static double max_microbatches(const plan_box& box, double step_s) {
    return (box.seconds - box.from_s) / step_s;
  }

  /// The micro-batches that a line can do by the end of a box, at most. `step_s`, `limit_s`: its
  /// longest step at least, and at most. `sums_s`: after its last backward.
  double max_number(const plan_box& box, std::uint32_t stages, double way_s, double step_s,
                    double limit_s, double sums_s = 0) const;
  /// The longest way of a line of a range that can run that number; with its sums, and without
  /// them, where the rounds of 1F1B count, too.
  /// The former ends with all, the latter where the box's tail begins.
  double longest_span_s(const plan_box& box, const step_range& range, std::uint32_t stages,
                        double number) const;
  double longest_way_s(const plan_box& box, const step_range& range, std::uint32_t stages,
                       double number) const;
  /// Numbers of micro-batches, up to `to`, that no line does whose way is longer than that.
  struct number_range {
    double to = 0, span_s = 0, way_s = 0;
  };
  struct open_numbers {
    std::uint32_t stages = 0;
    std::vector<number_range> numbers;
  };
  /// All numbers that lines of that many stages of a range can run. `shortest_s`: of their ways.
  std::vector<number_range> numbers_of(const plan_box& box, const step_range& range,
                                       std::uint32_t stages, double shortest_s) const;
  /// Whether no line of a range does more micro-batches than it costs: for each number of them a
  /// line that runs that number has a way that is short enough, and by some worth of the prices it
  /// costs as much. A line that does more after all is added.
  bool numbers_refute(const priced_box& at, const step_range& range);

  floor_table& floors_;
  joined_paths& paths_;
  const space_problem& problem_;
  std::size_t rows_index_;
  std::uint32_t microbatches_, max_pipelines_ = 1;
  planning_budget& budget_;
  bool own_shares_ = true, joins_ = false;
  std::vector<std::uint32_t> gpus_;  // by kind
  std::map<std::uint32_t, std::vector<double>> tails_;
  std::vector<double> early_;  // by stages - 1: at most so many steps
  smallest_box parts_;
  static constexpr std::size_t max_ranges = 400;
  std::vector<step_range> ranges_;
  std::vector<known_line> lines_;
  std::size_t doubtful_ = 0;
  bool worth_more_ = false;  // the last line that was tried was added
};

}  // namespace troupe::planners
