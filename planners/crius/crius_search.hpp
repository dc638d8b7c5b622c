#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

// The scheduling choices of Crius (section 6.1, Algorithm 1, lines 14 to 20;
// docs/planners/crius.md, "A scheduling choice"): a job's Cell, and at most `depth` other Cells for
// running jobs that make room for it or use idle GPUs. Only numbers of GPUs count here; nodes are
// found later.

namespace troupe::planners {

/// A Cell as the search sees it: GPUs of a pool, and the job's normalized throughput with them.
struct cell_choice {
  std::uint32_t pool = 0, gpus = 0;
  double value = 0;
};

/// A running job: its Cell, and the others that it could have instead. Their values are less the
/// cost of changing.
struct scalable_job {
  cell_choice present;
  std::vector<cell_choice> others;
};

struct scheduling_problem {
  std::vector<std::uint32_t> idle;  // GPUs, by pool
  std::vector<scalable_job> running;
};

struct rescaling {
  std::uint32_t job = 0, choice = 0;  // index into running, into its others

  bool operator==(const rescaling&) const = default;
};

struct scheduling_choice {
  std::optional<std::uint32_t> arrival;  // index into the arriving job's choices
  std::vector<rescaling> rescalings;
  double gain = 0;  // change of the sum of all values
};

/// Jobs that are alike, as the program of crius-solver sees them.
struct alike_choices {
  std::vector<cell_choice> choices;
  std::uint32_t jobs = 0;
  std::optional<std::size_t> present;  // index of the choice that all of them have now; none: none
};

/// How many jobs of each group have each choice.
struct cell_assignment {
  std::vector<std::vector<std::uint32_t>> taken;
  double value = 0;  // the sum of the jobs' values
  double bound = 0;  // no assignment has a larger one

  double gap() const { return value > 0 ? std::max(0.0, bound - value) / value : 0; }
};

/// The yardstick of crius-solver: at most one choice for each job, with the largest sum of values
/// within `capacity` GPUs per pool, in which the present choices fit. By CBC, to within 1e-3 of the
/// bound or for 50 nodes; never worse than the present choices with the idle GPUs dealt out
/// greedily. Deterministic.
cell_assignment solve_assignment(const std::vector<alike_choices>& groups,
                                 const std::vector<std::uint32_t>& capacity);

/// SCALERESOURCE and BESTPERF of Algorithm 1 in one: the best choice, exact unless the steps run
/// out (some 10 ns each; several searches share them). The best rescalings that make room for a
/// number of GPUs of a pool do not depend on the job that comes: they are searched for once,
/// however many jobs could use those GPUs.
class scheduling_search {
 public:
  scheduling_search(const scheduling_problem& problem, std::uint32_t depth);

  /// The choice with the largest gain; none: no choice gains. `arrivals`: the Cells of the job to
  /// start; empty: rescale only. `steps` is reduced by the steps taken; at 0 the best so far is
  /// returned.
  std::optional<scheduling_choice> best(const std::vector<cell_choice>& arrivals,
                                        std::uint64_t& steps);

 private:
  /// A rescaling as the search sees it.
  struct item {
    rescaling what;
    std::uint32_t from = 0, freed = 0, to = 0, taken = 0;
    double gain = 0;
    double reduced = 0;  // gain, less the price of GPUs taken, plus that of GPUs freed
  };
  /// The best rescalings that make room for an arrival.
  struct room {
    double above = 0;            // rescalings that gain no more than this were not searched for
    std::optional<double> gain;  // none: no rescalings gain more than `above`
    std::vector<std::uint32_t> used;  // items
  };

  const room& room_for(std::uint32_t pool, std::uint32_t gpus, double above);
  void list_items(const std::vector<scalable_job>& running);
  void keep_best_of_kind(std::vector<item>& all) const;
  void price_gpus(double above);
  double price_items();
  void sort_items();
  void descend(std::uint32_t left, double gain, std::size_t next_extra);
  void free_more(std::uint32_t pool, std::uint32_t left, double gain, double bound,
                 std::size_t next_extra);
  void take_extras(std::uint32_t left, double gain, double bound, std::size_t next_extra);
  void apply(std::uint32_t i, std::uint32_t left, double gain, std::size_t next_extra);
  /// Whether `left` rescalings cannot free the missing GPUs, even the largest ones.
  bool hopeless(std::uint32_t left) const;
  double price_of_slack() const;

  std::uint32_t depth_;
  std::vector<item> items_;
  std::vector<std::uint32_t> max_freed_;                           // by pool: of one item
  std::map<std::pair<std::uint32_t, std::uint32_t>, room> known_;  // by pool and GPUs
  // State of the search for one room:
  std::vector<std::int64_t> slack_;  // idle GPUs by pool; negative: missing
  std::vector<double> price_;        // of a GPU, by pool
  std::vector<std::uint32_t> top_;   // items with the largest reduced gains, of different jobs
  std::vector<double> rest_;         // [n]: upper bound of the reduced gain of n items
  std::vector<std::vector<std::uint32_t>> freeing_;  // by pool: items that free GPUs of it
  std::vector<std::uint32_t> extras_;                // items that gain something
  std::uint64_t steps_ = 0;
  std::vector<std::uint32_t> used_;  // items, in order
  room best_;
  double min_ = 0;  // gain that a better room must exceed
};

}  // namespace troupe::planners
