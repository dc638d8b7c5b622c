#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "planners/search/space/floor_table.hpp"

namespace troupe::planners {

/// A line as the shortest paths find it.
struct joined_line {
  double cost = 0;
  std::vector<std::uint32_t> firsts, classes;
  double way_s = 0, step_s = 0;  // by the floors, with those of hops that leave a node
  double first_sums_s = 0;       // of the nodes of its first and last stage, less what is beside
  double last_sums_s = 0;        // them; if the question has pipelines
};

/// The cheapest line over all cuts and classes, as line_paths has it, which also knows what stages
/// have to leave a node: consecutive stages are on one node only if it has GPUs for all of them. So
/// a path has one more state, what is in front of its first stage: a hop that leaves the node
/// (`apart`), or one inside a node that has so many GPUs of these stages already. What the sums of
/// the stages on the first or the last stage's node take of its card may count, too.
class joined_paths {
 public:
  explicit joined_paths(floor_table& floors);

  /// Which lines are looked for, and what their cost is.
  struct question {
    std::size_t rows_index = 0;
    double limit_s = 0;  // on a stage's step
    double worth_s = 0;  // the cost of a line has this x price x GPUs
    /// Sums of one node, of so many pipelines or more, are a part of the cost; 0: they are not.
    std::uint32_t pipelines = 0;
    bool of_last_node = false;  // else of the first stage's
    bool within_tails = false;  // without the stages that set_tails() leaves out
    /// Otherwise hops are the cheapest ones, wherever stages are: a lower cost, for less work.
    bool joined = true;
  };
  /// The cost of a line is the sum over its stages of the floor of the way, of what the question
  /// adds, and of the GPUs. `prices`: of a GPU by kind, in micro-batches.
  void run(const question& q, const std::vector<double>& prices);
  /// Stages whose entry, by place_of(0, first, count) + class, is above `max_tail_s` are left out
  /// of runs from now on. `tails` has to stay until the last of these.
  void set_tails(const std::vector<double>& tails, double max_tail_s);
  /// The smallest cost of a line of so many stages, after run(); infinite: there is none.
  double cost(std::uint32_t stages) const { return costs_[stages - 1]; }
  double min_cost() const;
  /// The line of cost(stages), which is finite.
  joined_line line(std::uint32_t stages);
  std::uint32_t max_stages() const { return stages_; }
  /// Work done so far, in a planning_budget's units.
  std::uint64_t units() const { return units_; }

 private:
  static constexpr double never = std::numeric_limits<double>::infinity();
  static constexpr auto never_gpus = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::size_t apart = 0;  // the state; the others are room_of()

  enum class hop : std::uint8_t { none, inside, leaves };
  struct place {
    std::uint32_t behind = 0, first = 0, count = 0;
  };
  /// A stage with what is on both sides of it.
  struct joined_stage {
    place at;
    std::uint32_t cls = 0;
    hop in_front = hop::none, after = hop::none;
    bool summed = false;  // on the node whose sums count
  };
  /// A stage in front of a state.
  struct step_back {
    double cost = never;
    std::uint32_t count = 0, cls = 0;
    std::size_t from = 0;
    bool summed = false;
  };
  /// Costs of stages of some first piece by the number of pieces - 1, for stages behind that are in
  /// each of two states.
  struct stage_costs {
    std::vector<double> apart_apart;
    std::vector<std::vector<double>> apart_joined, joined_joined;  // by class
    std::vector<std::vector<double>> joined_apart;                 // by free GPUs of a kind - 1
  };

  /// The state of stages of a kind that have so many GPUs of a node, of which some are left.
  /// `summed`: of the node whose sums count.
  std::size_t room_of(std::uint32_t kind, std::uint32_t used, bool summed) const {
    return 1 + slots_[kind] + used - 1 + (summed ? slots_.back() : 0);
  }
  double* values(std::size_t state, std::uint32_t behind) {
    return &values_[(state * stages_ + behind) * (pieces_ + 1)];
  }
  const double* values(std::size_t state, std::uint32_t behind) const {
    return &values_[(state * stages_ + behind) * (pieces_ + 1)];
  }
  bool counts_sums() const { return q_.pipelines > 0; }
  double step_s(const joined_stage& s) const;
  double way_s(const joined_stage& s) const;
  /// The part of card_s that such a stage's sums take, with so many hops inside the node.
  double part_of_sums(std::uint32_t cls, std::uint32_t inside) const;
  /// The sums that count, as the stage adds to them, less what is beside them.
  double sums_s(const joined_stage& s) const;
  double cost_of(const joined_stage& s) const;
  void set_sums(joined_line& out, std::vector<joined_stage> stages);
  void set_lengths();
  void set_costs(std::uint32_t behind, std::uint32_t first);
  void fill_last(std::uint32_t first);
  /// For all lines with so many stages behind the first one.
  double whole_cost(std::uint32_t behind);
  void fill(std::uint32_t behind, std::uint32_t first, const stage_costs& costs);
  /// The rooms of the node whose sums count, for stages of up to at.count pieces.
  void fill_summed(place at, const stage_costs& costs);
  bool first_node_counts() const { return counts_sums() && !q_.of_last_node; }
  bool last_node_counts() const { return counts_sums() && q_.of_last_node; }
  /// Lowers a value by the paths with a stage of these costs in front of a state.
  void lower(double& value, const std::vector<double>& costs, std::size_t from, place at);
  /// The cheapest stage of at.count pieces, or of any number if that is 0, in front of the stages
  /// behind, for a state in front of it; `whole`: nothing is in front.
  step_back cheapest(place at, std::size_t state, bool whole) const;
  /// Whether a stage in front of so many GPUs of its node makes that state.
  bool takes(std::uint32_t cls, std::uint32_t used, std::size_t state) const;
  /// Takes the stage in front of others on its node into the best one.
  void add_joined(step_back& best, const joined_stage& s, std::size_t state) const;
  /// The smallest value of stages from a piece on that have room for one of the class.
  double beside_room(std::uint32_t cls, std::uint32_t behind, std::uint32_t first,
                     bool summed) const;
  void close_last_node(double& value, std::uint32_t kind, std::uint32_t used, place at,
                       const stage_costs& costs);
  void better_of(step_back& best, const joined_stage& s, std::size_t from) const;

  floor_table* floors_;
  std::uint32_t pieces_, stages_, classes_;
  bool may_join_ = false;  // whether it makes a difference that a hop is inside a node
  floor_table::hop_places no_hops_;
  std::vector<std::uint32_t> node_, smallest_;  // by kind: GPUs of a node; the smallest degree
  std::vector<std::uint32_t> slots_;            // by kind: where its rooms begin; then: all
  // This run's:
  question q_;
  bool joins_ = false;
  const space_times::stage_floor* all_ = nullptr;
  const floor_table::hop_places* hops_ = nullptr;
  const floor_table::sum_places* sums_ = nullptr;
  std::vector<double> gpu_cost_;  // by class
  std::vector<double> values_, costs_;
  std::vector<std::uint32_t> lengths_;  // by stages behind and first piece: pieces within the limit
  std::uint32_t longest_ = 0;
  std::vector<stage_costs> stage_costs_;  // by first piece, of the twins' first ones
  std::vector<double> with_sums_[2];      // scratch
  const double* tails_ = nullptr;
  double max_tail_s_ = 0;
  std::vector<std::uint32_t> kept_;  // by first piece: all stages of so many pieces keep the tails
  std::vector<std::uint32_t> ends_;  // none of more pieces does
  std::uint64_t steps_ = 0, units_ = 0;
};

}  // namespace troupe::planners
