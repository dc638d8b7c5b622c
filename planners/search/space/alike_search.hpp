#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "planners/cluster/planning_budget.hpp"
#include "planners/search/space/best_plans.hpp"
#include "planners/search/space/cut_lines.hpp"
#include "planners/search/space/floor_table.hpp"
#include "planners/search/space/line_paths.hpp"
#include "planners/search/space/space_room.hpp"

namespace troupe::planners {

/// Plans whose pipelines are all alike (docs/planners/plan_search.md, "All pipelines alike"): cuts
/// by prices, the lines of each cut, and each line on every smallest set of datacenters that has
/// room for it. Then moves, until none helps: pieces across a cut, classes of a stage, rows, the
/// order of datacenters.
class alike_search {
 public:
  /// `times` may be others than the table's, if they have the same floors of stages; `p` another
  /// space.
  alike_search(const space_problem& p, const space_times& times, floor_table& floors,
               const space_room& room, best_plans& best, planning_budget& budget);

  void run();
  /// The same with the cuts that another search of the same problem has found, but for its space.
  void run(std::vector<ranked_cut> cuts);
  /// Moves from the best plans, also from such that others have offered.
  void improve();
  /// The cuts that were found, best rough score first.
  const std::vector<ranked_cut>& cuts() const { return cuts_; }
  const std::vector<std::vector<double>>& prices(std::size_t rows_index) const {
    return prices_[rows_index];
  }

 private:
  struct line_room;

  bool spend();
  /// Plans that are no better by their floors are not valued: moves begin at the best ones.
  double near_best() const { return 1.003 * best_.best(); }
  void collect_cuts();
  void collect_cuts(std::size_t rows_index, double limit_s, std::uint32_t tensor);
  void add_even_cuts();
  void add_cut(std::size_t rows_index, const std::vector<std::uint32_t>& firsts, double rough);
  void try_cut(const ranked_cut& cut);
  void try_line(std::size_t rows_index, const std::vector<std::uint32_t>& firsts,
                const cut_line& line);
  void try_pipelines(std::size_t rows_index, const std::vector<std::uint32_t>& firsts,
                     const cut_line& line, const line_room& room, std::uint32_t pipelines);
  double rough_s(std::size_t rows_index, const std::vector<std::uint32_t>& firsts,
                 const cut_line& line, double pipelines) const;
  double rough_score(std::size_t rows_index, const std::vector<std::uint32_t>& firsts,
                     const cut_line& line, double pipelines) const;
  line_room room_of(const std::vector<std::uint32_t>& classes) const;
  std::vector<std::uint32_t> pipeline_counts(std::size_t rows_index, std::uint32_t max) const;
  void try_crossing();
  void move(const space_plan& from);
  void move_pieces(std::size_t rows_index, const space_plan& from,
                   const std::vector<std::uint32_t>& classes);
  void move_stages(std::size_t rows_index, const space_plan& from,
                   const std::vector<std::uint32_t>& classes);
  void try_classes(std::size_t rows_index, const std::vector<std::uint32_t>& firsts,
                   const std::vector<std::uint32_t>& classes);

  const space_problem& problem_;
  const space_times& times_;
  floor_table& floors_;
  const space_room& room_;
  best_plans& best_;
  planning_budget& budget_;
  line_paths paths_;
  std::size_t rows_;                                      // that may be used, of the problem's
  std::vector<std::uint32_t> gpus_;                       // by kind
  std::vector<std::vector<std::vector<double>>> prices_;  // by rows: directions
  std::map<std::pair<std::size_t, std::vector<std::uint32_t>>, double> rough_;
  std::vector<ranked_cut> cuts_;
  std::vector<space_plan> tried_;  // by moves
  std::uint64_t units_ = 0, spent_ = 0;
};

/// A plan whose pipelines are all alike: `pipelines` of them, as many as fit in each datacenter of
/// `order` (`copies`: by datacenter), with the micro-batches divided as evenly as they can be.
space_plan alike_plan(std::uint32_t rows, std::uint32_t microbatches,
                      const std::vector<std::uint32_t>& firsts,
                      const std::vector<std::uint32_t>& classes, std::uint32_t pipelines,
                      const std::vector<std::uint32_t>& copies,
                      const std::vector<std::uint32_t>& order);

}  // namespace troupe::planners
