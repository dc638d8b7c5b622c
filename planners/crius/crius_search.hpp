#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

// What Crius chooses among when it schedules (section 6.1): a job's Cell, and at most `depth` other
// Cells for running jobs that make room for it or use what is idle. Exact; counts only, placement
// comes later.

namespace troupe::planners {

/// So many GPUs of a pool, and what the job is worth there: its normalised throughput.
struct cell_choice {
  std::uint32_t pool = 0, gpus = 0;
  double value = 0;
};

/// A running job: what it has, and what it could have instead. A choice's value is net of what
/// changing costs.
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
  std::optional<std::uint32_t> arrival;  // index into what may arrive
  std::vector<rescaling> rescalings;
  double gain = 0;  // of all values together
};

/// One of a job's choices each, or none, with the most value in all, within the GPUs that there
/// are: `jobs[i]` lists the choices of `counts[i]` jobs that are alike. Returns how many of them
/// have each. By Cbc, to within 1e-3 of the relaxation's value or after 50 nodes; deterministic.
std::vector<std::vector<std::uint32_t>> solve_assignment(
    const std::vector<std::vector<cell_choice>>& jobs, const std::vector<std::uint32_t>& counts,
    const std::vector<std::uint32_t>& capacity);

/// Searches with an effort limit in steps (some 10 ns each), which several searches share. The
/// rescalings that make most of room for so many GPUs of a pool do not depend on the job that
/// comes: they are searched for once, however many jobs could have those GPUs.
class scheduling_search {
 public:
  scheduling_search(const scheduling_problem& problem, std::uint32_t depth);

  /// The choice with the most gain, which is above 0; none: there is none. `arrivals`: what the job
  /// to start could have; empty: rescale only. `steps` is lowered by what it took; at 0 the best so
  /// far is returned.
  std::optional<scheduling_choice> best(const std::vector<cell_choice>& arrivals,
                                        std::uint64_t& steps);

 private:
  /// A rescaling as the search sees it.
  struct item {
    rescaling what;
    std::uint32_t from = 0, freed = 0, to = 0, taken = 0;
    double gain = 0;
    double reduced = 0;  // its gain, less the price of the GPUs that it takes beyond those it frees
  };
  /// What makes room for an arrival: rescalings, and what they gain.
  struct room {
    double above = 0;  // it gains more than that, or there is none that does
    std::optional<double> gain;
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
  bool is_used(std::uint32_t job) const;
  /// No `left` rescalings free so many GPUs.
  bool hopeless(std::uint32_t left) const;
  void note(double gain);
  double price_of_slack() const;

  std::uint32_t depth_;
  std::vector<item> items_;
  std::vector<std::uint32_t> max_freed_;                           // by pool: of one item
  std::map<std::pair<std::uint32_t, std::uint32_t>, room> known_;  // by pool and GPUs
  // Of the search for one room:
  std::vector<std::int64_t> slack_;  // by pool
  std::vector<double> price_;        // of a GPU, by pool
  std::vector<std::uint32_t> top_;   // the items of the largest reduced gains, of different jobs
  std::vector<double> rest_;         // [n]: the most that n items gain at these prices
  std::vector<std::vector<std::uint32_t>> freeing_;  // by pool: items that free GPUs of it
  std::vector<std::uint32_t> extras_;                // items that gain something
  std::uint64_t steps_ = 0;
  std::vector<std::uint32_t> used_;  // items, in order
  room best_;
  double min_ = 0;  // what is better than the best so far gains more
};

}  // namespace troupe::planners
