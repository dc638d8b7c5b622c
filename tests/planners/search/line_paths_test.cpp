#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <vector>

#include "messages/base/random.hpp"
#include "planners/search/space/floor_table.hpp"
#include "planners/search/space/line_paths.hpp"
#include "planners/search/space/space_room.hpp"

// The shortest paths beside every cut and class of stages. Ranges of equal length have equal
// floors, as those of a transformer do, but for the first stage's and those with a piece of more
// work.

using namespace troupe;
using namespace troupe::planners;

namespace {

constexpr double no_line = std::numeric_limits<double>::infinity();

class even_times final : public space_times {
 public:
  explicit even_times(random_source& r) {
    for (auto& x : piece_s_) x = 0.5 + r.uniform();
    for (auto& x : held_) x = static_cast<std::uint32_t>(3 + r.below(12));
    first_s_ = 2 * r.uniform(), send_s_ = r.uniform(), sum_s_ = 0.2 + r.uniform();
    heavy_ = static_cast<std::uint32_t>(r.below(8));
  }

  stage_floor floor_of(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                       std::uint32_t count, std::uint32_t behind) const override {
    if (count * (behind + 1) > held_[cls]) return {no_line, no_line};
    const bool heavy = first <= heavy_ && heavy_ < first + count;
    const double s = rows * piece_s_[cls] * (count + (heavy ? 1 : 0)) + (first == 0 ? first_s_ : 0);
    return {s + (behind > 0 ? send_s_ : 0), s};
  }
  /// The part of a sum that the pieces before it do not hide.
  double tail_floor_s(std::uint32_t, std::uint32_t cls, std::uint32_t first, std::uint32_t count,
                      std::uint32_t) const override {
    return std::max(0.0, sum_s_ * count * (1 + cls) - 0.3 * first);
  }
  double line_s(const space_line&, std::uint32_t) const override { return 0; }
  space_value value(const space_plan&) const override { return {}; }

 private:
  double piece_s_[3]{}, first_s_ = 0, send_s_ = 0, sum_s_ = 0;
  std::uint32_t held_[3]{}, heavy_ = 0;
};

/// All lines of a number of stages, by recursion over the stages.
struct every_line {
  floor_table& floors;
  std::vector<double> gpu_cost, tails;
  double limit_s = 0, max_tail_s = no_line;

  double cheapest(std::uint32_t first, std::uint32_t stages) const {
    const auto& p = floors.problem();
    const auto left = p.pieces - first;
    double best = no_line;
    for (auto count = stages == 1 ? left : 1; count + stages - 1 <= left; ++count)
      for (std::uint32_t c = 0; c < p.classes.size(); ++c) {
        const auto& f = floors.of_rows(0)[floors.place_of(stages - 1, first, count) + c];
        if (f.step_s > limit_s || tails[floors.place_of(0, first, count) + c] > max_tail_s)
          continue;
        const double rest = stages == 1 ? 0 : cheapest(first + count, stages - 1);
        best = std::min(best, f.way_s + gpu_cost[c] + rest);
      }
    return best;
  }
};

}  // namespace

TEST_CASE("the cheapest lines are those of all cuts and classes, with and without limits of sums") {
  random_source r{5};
  std::size_t finite = 0, excluded = 0;
  for (int i = 0; i < 60; ++i) {
    const even_times times{r};
    space_problem p;
    p.pieces = 8, p.samples = 4, p.rows = {1}, p.max_stages = 4;
    p.kinds.resize(2);
    p.classes = {{0, 1}, {0, 2}, {1, 1}};
    p.pools = {{0, 0, {4}}, {1, 0, {4}}};
    const space_room room{p};
    floor_table floors{p, times, room};
    line_paths paths{floors};
    every_line all{floors, {}, {}};
    all.tails.resize(floors.place_of(1, 0, 0), no_line);
    for (std::uint32_t first = 0; first < p.pieces; ++first)
      for (std::uint32_t count = 1; first + count <= p.pieces; ++count)
        for (std::uint32_t c = 0; c < p.classes.size(); ++c)
          all.tails[floors.place_of(0, first, count) + c] =
              times.tail_floor_s(1, c, first, count, 2);
    for (int run = 0; run < 8; ++run) {
      const std::vector<double> prices{r.uniform(), r.uniform()};
      const double worth_s = 5 * r.uniform();
      const bool within = r.chance(0.5);
      all.limit_s = 2 + 8 * r.uniform();
      all.max_tail_s = within ? 4 * r.uniform() : no_line;
      all.gpu_cost.clear();
      for (const auto& c : p.classes) all.gpu_cost.push_back(worth_s * prices[c.kind] * c.tensor);
      if (within) paths.set_tails(all.tails, all.max_tail_s);
      paths.run(0, all.limit_s, worth_s, prices, 0, within);
      for (std::uint32_t stages = 1; stages <= 4; ++stages) {
        const double best = all.cheapest(0, stages);
        CAPTURE(i, run, stages, within, best);
        if (!(best < no_line)) {
          CHECK(paths.cost(stages) == no_line);
          ++excluded;
          continue;
        }
        ++finite;
        CHECK(paths.cost(stages) == Approx(best).epsilon(1e-12));
        const auto line = paths.line(stages);
        const auto floor = line_floor(floors, 0, line.firsts, line.classes);
        double cost = floor.way_s;
        for (const auto c : line.classes) cost += all.gpu_cost[c];
        CHECK(cost == Approx(best).epsilon(1e-12));
        CHECK(floor.step_s <= all.limit_s);
      }
    }
  }
  CHECK(finite > 300);
  CHECK(excluded > 100);
}
