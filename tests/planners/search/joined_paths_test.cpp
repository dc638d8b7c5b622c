#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "messages/base/random.hpp"
#include "planners/search/space/floor_table.hpp"
#include "planners/search/space/joined_paths.hpp"
#include "planners/search/space/space_room.hpp"

// The shortest paths that know nodes, beside every cut, every class of stages, and every choice of
// hops that stay on a node.

using namespace troupe;
using namespace troupe::planners;

namespace {

constexpr double no_noded_line = std::numeric_limits<double>::infinity();

/// Ranges of equal length have equal floors but for the first stage's and those of a heavy piece.
class noded_times final : public space_times {
 public:
  explicit noded_times(random_source& r) {
    for (auto& x : piece_s_) x = 0.5 + r.uniform();
    for (auto& x : held_) x = static_cast<std::uint32_t>(3 + r.below(12));
    for (auto* side : {in_front_, behind_})
      for (int c = 0; c < 4; ++c) {
        side[c] = {r.uniform(), r.chance(0.5) ? 0.4 * r.uniform() : 0.0, 0};
        if (r.chance(0.05)) side[c].way_s = no_noded_line;
      }
    first_s_ = 2 * r.uniform(), send_s_ = 0.3 * r.uniform();
    card_s_ = r.chance(0.2) ? 0 : 2 * r.uniform();
    heavy_ = static_cast<std::uint32_t>(r.below(6));
  }

  stage_floor floor_of(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                       std::uint32_t count, std::uint32_t behind) const override {
    if (count * (behind + 1) > held_[cls]) return {no_noded_line, no_noded_line};
    const double s = rows * work_s(cls, first, count);
    return {s + (behind > 0 ? send_s_ : 0), s};
  }
  double tail_floor_s(std::uint32_t, std::uint32_t cls, std::uint32_t first, std::uint32_t count,
                      std::uint32_t) const override {
    return std::max(0.0, 0.7 * count * (1 + cls) - 0.3 * first);
  }
  hop_floor leaving_floor(std::uint32_t, std::uint32_t cls, bool to_next) const override {
    return to_next ? behind_[cls] : in_front_[cls];
  }
  node_sum node_sum_of(std::uint32_t, std::uint32_t cls, std::uint32_t first,
                       std::uint32_t count) const override {
    return {card_s_ * count * (1 + 0.1 * cls), 0.7 * work_s(cls, first, count), 0.2 * count,
            0.3 * work_s(cls, first, count)};
  }
  double line_s(const space_line&, std::uint32_t) const override { return 0; }
  space_value value(const space_plan&) const override { return {}; }
  bool has_sums() const { return card_s_ > 0; }

 private:
  double work_s(std::uint32_t cls, std::uint32_t first, std::uint32_t count) const {
    const bool heavy = first <= heavy_ && heavy_ < first + count;
    return piece_s_[cls] * (count + (heavy ? 1 : 0)) + (first == 0 ? first_s_ : 0);
  }

  double piece_s_[4]{}, first_s_ = 0, send_s_ = 0, card_s_ = 0;
  hop_floor in_front_[4], behind_[4];
  std::uint32_t held_[4]{}, heavy_ = 0;
};

struct one_stage {
  std::uint32_t first = 0, count = 0, cls = 0;
  bool joins_next = false;  // the hop after it is inside a node
};

/// All lines of a number of stages.
struct every_noded_line {
  const space_problem& p;
  const noded_times& times;
  joined_paths::question q;
  std::vector<double> prices;
  double max_tail_s = no_noded_line;
  bool exact_peers = false;  // else as many as the paths allow
  std::vector<one_stage> line{};
  double best = no_noded_line;
  /// Only lines of this cut and these classes, if there are any.
  const joined_line* only = nullptr;

  std::uint32_t node(std::uint32_t kind) const { return std::ranges::max(p.pools[kind].free); }

  /// Stages are on one node from one to another, both included.
  std::pair<std::size_t, std::size_t> node_of(std::size_t i) const {
    auto begin = i, end = i;
    while (begin > 0 && line[begin - 1].joins_next) --begin;
    while (line[end].joins_next) ++end;
    return {begin, end};
  }
  bool nodes_hold() const {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const auto [begin, end] = node_of(i);
      std::uint32_t gpus = 0;
      for (auto k = begin; k <= end; ++k) {
        if (p.classes[line[k].cls].kind != p.classes[line[i].cls].kind) return false;
        gpus += p.classes[line[k].cls].tensor;
      }
      if (gpus > node(p.classes[line[i].cls].kind)) return false;
    }
    return true;
  }
  /// The part of a stage's gradients that passes its card.
  double part(std::size_t i) const {
    const auto& c = p.classes[line[i].cls];
    const auto [begin, end] = node_of(i);
    auto taken = c.tensor;
    for (auto k = begin; k <= end; ++k) {
      const bool beside = k + 1 == i || i + 1 == k;
      if (k == i) continue;
      if (exact_peers)
        taken += p.classes[line[k].cls].tensor;
      else if (beside)
        ++taken;
    }
    auto smallest = c.tensor;
    for (const auto& other : p.classes)
      if (p.space.several_kinds && other.kind == c.kind)
        smallest = std::min(smallest, other.tensor);
    double here = 1;
    for (auto left = node(c.kind); left >= taken + smallest; left -= smallest) ++here;
    return 2 * std::max(0.0, 1 - here / q.pipelines);
  }
  double cost() const {
    double all = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const auto& s = line[i];
      const auto behind = static_cast<std::uint32_t>(line.size() - 1 - i);
      const auto f = times.floor_of(1, s.cls, s.first, s.count, behind);
      const auto& c = p.classes[s.cls];
      double way_s = f.way_s, step_s = f.step_s;
      if (q.joined && i > 0 && !line[i - 1].joins_next) {
        way_s += times.leaving_floor(1, s.cls, false).way_s;
        step_s += times.leaving_floor(1, s.cls, false).step_s;
      }
      if (q.joined && i + 1 < line.size() && !s.joins_next) {
        way_s += times.leaving_floor(1, s.cls, true).way_s;
        step_s += times.leaving_floor(1, s.cls, true).step_s;
      }
      if (!(step_s <= q.limit_s) || !(way_s < no_noded_line)) return no_noded_line;
      if (q.within_tails && times.tail_floor_s(1, s.cls, s.first, s.count, 2) > max_tail_s)
        return no_noded_line;
      all += q.worth_s * prices[c.kind] * c.tensor;
      if (!(q.pipelines > 0 && q.joined)) {
        all += way_s;
        continue;
      }
      const auto [begin, end] = node_of(i);
      const auto sum = times.node_sum_of(1, s.cls, s.first, s.count);
      const bool counts = q.of_last_node ? end + 1 == line.size() : begin == 0;
      const double card_s = counts ? part(i) * sum.card_s : 0;
      all += card_s;
      if (q.of_last_node) {
        all += i + 1 == line.size() ? way_s : sum.forward_s;
        continue;
      }
      all += way_s;
      // Backwards of all but the last one of the node follow that one's.
      if (counts && i < end) all -= sum.hidden_s;
      if (counts && i == 0 && card_s > 0) all += sum.update_s;
    }
    return all;
  }

  void add_stages(std::uint32_t first, std::uint32_t stages) {
    if (stages == 0) {
      if (nodes_hold()) best = std::min(best, cost());
      return;
    }
    const auto left = p.pieces - first;
    for (auto count = stages == 1 ? left : 1; count + stages - 1 <= left; ++count)
      for (std::uint32_t c = 0; c < p.classes.size(); ++c)
        for (const bool joins : {false, true}) {
          if (joins && (stages == 1 || !q.joined)) continue;
          const auto i = line.size();
          if (only && (only->firsts[i] != first || only->classes[i] != c)) continue;
          line.push_back({first, count, c, joins});
          add_stages(first + count, stages - 1);
          line.pop_back();
        }
  }
  double cheapest(std::uint32_t stages) {
    best = no_noded_line;
    add_stages(0, stages);
    return best;
  }
};

struct nodes_instance {
  space_problem p;

  explicit nodes_instance(random_source& r) {
    p.pieces = 6, p.samples = 4, p.rows = {1}, p.max_stages = 4;
    p.kinds.resize(2);
    p.classes = {{0, 1}, {0, 2}, {1, 1}, {1, 2}};
    p.space.several_kinds = r.chance(0.5);
    const std::vector<std::uint32_t> sizes{1, 2, 3, 4, 4, 8};
    // Those with one GPU have no stage of two.
    const auto a = sizes[r.below(6)], b = sizes[r.below(6)];
    p.pools = {{0, 0, {1, a}}, {1, 0, {b}}};
  }
};

}  // namespace

TEST_CASE("the cheapest lines that know nodes are those of all cuts, classes and nodes") {
  random_source r{7};
  std::size_t finite = 0, excluded = 0, dearer = 0, joined = 0;
  for (int i = 0; i < 60; ++i) {
    const nodes_instance x{r};
    const noded_times times{r};
    const auto& p = x.p;
    const space_room room{p};
    floor_table floors{p, times, room};
    joined_paths paths{floors};
    std::vector<double> tails(floors.place_of(1, 0, 0), no_noded_line);
    for (std::uint32_t first = 0; first < p.pieces; ++first)
      for (std::uint32_t count = 1; first + count <= p.pieces; ++count)
        for (std::uint32_t c = 0; c < p.classes.size(); ++c)
          tails[floors.place_of(0, first, count) + c] = times.tail_floor_s(1, c, first, count, 2);
    for (int run = 0; run < 6; ++run) {
      joined_paths::question q;
      q.limit_s = 2 + 6 * r.uniform(), q.worth_s = 5 * r.uniform();
      q.pipelines = r.chance(0.3) ? 0 : static_cast<std::uint32_t>(1 + r.below(12));
      q.of_last_node = r.chance(0.5), q.within_tails = r.chance(0.5), q.joined = r.chance(0.9);
      every_noded_line all{p, times, q, {r.uniform(), r.uniform()}, 0.5 + 4 * r.uniform()};
      if (q.within_tails) paths.set_tails(tails, all.max_tail_s);
      paths.run(q, all.prices);
      // Where no sum takes a card there are none to count.
      if (!times.has_sums()) all.q.pipelines = q.pipelines = 0;
      for (std::uint32_t stages = 1; stages <= 4; ++stages) {
        all.only = nullptr, all.exact_peers = false;
        const double best = all.cheapest(stages);
        CAPTURE(i, run, stages, q.pipelines, q.of_last_node, q.within_tails, q.joined, best);
        if (!(best < no_noded_line)) {
          CHECK(paths.cost(stages) == no_noded_line);
          ++excluded;
          continue;
        }
        ++finite;
        CHECK(paths.cost(stages) == Approx(best).epsilon(1e-12));
        const auto line = paths.line(stages);
        CHECK(line.cost == paths.cost(stages));
        REQUIRE(line.firsts.size() == stages);
        CHECK(line.step_s <= q.limit_s);
        double cost = line.way_s;
        for (const auto c : line.classes)
          cost += q.worth_s * all.prices[p.classes[c].kind] * p.classes[c].tensor;
        if (q.pipelines > 0) cost += q.of_last_node ? line.last_sums_s : line.first_sums_s;
        CHECK(cost == Approx(best).epsilon(1e-12));
        all.only = &line;
        CHECK(all.cheapest(stages) == Approx(best).epsilon(1e-12));
        // No node has more peers than are left beside all of its stages.
        all.only = nullptr, all.exact_peers = true;
        const double true_best = all.cheapest(stages);
        CHECK(best <= true_best * (1 + 1e-12));
        dearer += true_best > best * (1 + 1e-9) ? 1 : 0;
        auto apart = q;
        apart.joined = false, apart.pipelines = 0;
        every_noded_line cheap{p, times, apart, all.prices, all.max_tail_s};
        if (!q.of_last_node && q.joined)
          joined += cheap.cheapest(stages) < best * (1 - 1e-9) ? 1 : 0;
      }
    }
  }
  CHECK(finite > 500);
  CHECK(excluded > 100);
  CHECK(dearer > 10);
  CHECK(joined > 200);
}
