#pragma once

#include <cstdint>
#include <vector>

#include "planners/cluster/planning_budget.hpp"
#include "planners/search/space/alike_search.hpp"
#include "planners/search/space/best_plans.hpp"
#include "planners/search/space/floor_table.hpp"
#include "planners/search/space/shares.hpp"
#include "planners/search/space/space_room.hpp"

namespace troupe::planners {

/// Plans with pipelines of several kinds (docs/planners/plan_search.md, "Several kinds"). For a cut
/// and a time, a linear program says how many pipelines of each line do the most micro-batches on
/// the GPUs that there are, or do all of them for the lowest price. Its answer is rounded down, and
/// what is left of the GPUs is filled from the same lines by exact fit.
class kind_search {
 public:
  kind_search(floor_table& floors, const space_room& room, best_plans& best,
              planning_budget& budget);

  /// Tries the cuts of the best plans, and then `cuts` in their order; at the end moves from the
  /// best plans: a pipeline more, less, or of another line.
  void run(const alike_search& alike);

 private:
  /// A line in a datacenter: a column of the program.
  struct column {
    std::vector<space_seat> seats;
    std::vector<std::uint32_t> use;  // by limit of the room
    double start_s = 0, step_s = 0;  // of its iteration, with the sums of its stages
    double dollars_per_hour = 0;
    std::uint32_t max = 0;  // that its datacenter has room for
  };
  struct cut_columns {
    std::size_t rows_index = 0;
    std::vector<std::uint32_t> firsts;
    std::vector<column> all;
  };

  bool spend();
  void try_cut(const ranked_cut& cut, const std::vector<std::vector<double>>& prices);
  cut_columns columns_of(const ranked_cut& cut, const std::vector<std::vector<double>>& prices);
  void add_columns(cut_columns& out, const cut_line& line, std::uint32_t pipelines);
  static void drop_dominated(std::vector<column>& all);
  void bisect(const cut_columns& c, double pipeline_price, std::uint32_t equal_share);
  double weight(const cut_columns& c, const column& k, double seconds,
                std::uint32_t equal_share) const;
  std::vector<double> relaxed(const cut_columns& c, double seconds, double pipeline_price,
                              std::uint32_t equal_share, double& reached) const;
  void offer_rounded(const cut_columns& c, const std::vector<double>& n, double seconds,
                     std::uint32_t equal_share);
  void fill(const cut_columns& c, std::vector<std::uint32_t>& n, double seconds,
            std::uint32_t equal_share);
  bool offer_counts(const cut_columns& c, std::vector<std::uint32_t> n);
  void move(const space_plan& from, const std::vector<std::vector<double>>& prices);

  floor_table& floors_;
  const space_problem& problem_;
  const space_room& room_;
  best_plans& best_;
  planning_budget& budget_;
  std::uint64_t units_ = 0, spent_ = 0;
};

}  // namespace troupe::planners
