#include "planners/search/space/alike_search.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "planners/search/space/small_plans.hpp"

namespace troupe::planners {

/// Pipelines of a line that each datacenter has room for.
struct alike_search::line_room {
  std::vector<std::uint32_t> copies;
  std::uint32_t all = 0;
};

namespace {

constexpr double no_plan = std::numeric_limits<double>::infinity();

// Where there are more, only neighbours change places: all orders are for the best plan alone.
constexpr std::size_t few_orders = 2;

std::uint32_t gpus_of_line(const space_problem& p, const std::vector<std::uint32_t>& classes) {
  std::uint32_t n = 0;
  for (const auto c : classes) n += p.classes[c].tensor;
  return n;
}

double dollars_per_hour(const space_problem& p, const std::vector<std::uint32_t>& classes) {
  double dollars = 0;
  for (const auto c : classes)
    dollars += p.kinds[p.classes[c].kind].price_per_hour * p.classes[c].tensor;
  return dollars;
}

std::uint32_t end_of(const space_problem& p, const std::vector<std::uint32_t>& firsts,
                     std::size_t stage) {
  return stage + 1 < firsts.size() ? firsts[stage + 1] : p.pieces;
}

/// Every set of datacenters with room for so many pipelines of which each one is needed. Of more
/// than six only the one with the most room.
std::vector<std::vector<std::uint32_t>> smallest_sets(const std::vector<std::uint32_t>& copies,
                                                      std::uint32_t pipelines) {
  const auto n = static_cast<std::uint32_t>(copies.size());
  std::vector<std::vector<std::uint32_t>> out;
  if (n > 6) {
    std::vector<std::uint32_t> all(n), set;
    std::iota(all.begin(), all.end(), 0U);
    std::ranges::stable_sort(all, std::greater{}, [&](auto d) { return copies[d]; });
    std::uint32_t room = 0;
    for (std::size_t i = 0; i < n && room < pipelines; ++i)
      set.push_back(all[i]), room += copies[all[i]];
    return {set};
  }
  for (std::uint32_t bits = 1; bits < 1U << n; ++bits) {
    std::uint32_t room = 0, smallest = std::numeric_limits<std::uint32_t>::max();
    std::vector<std::uint32_t> set;
    for (std::uint32_t d = 0; d < n; ++d)
      if (bits >> d & 1U)
        room += copies[d], smallest = std::min(smallest, copies[d]), set.push_back(d);
    if (room >= pipelines && room - smallest < pipelines) out.push_back(std::move(set));
  }
  return out;
}

}  // namespace

space_plan alike_plan(std::uint32_t rows, std::uint32_t microbatches,
                      const std::vector<std::uint32_t>& firsts,
                      const std::vector<std::uint32_t>& classes, std::uint32_t pipelines,
                      const std::vector<std::uint32_t>& copies,
                      const std::vector<std::uint32_t>& order) {
  space_plan plan{rows, firsts, {}};
  const auto share = microbatches / pipelines;
  auto more = microbatches % pipelines, left = pipelines;
  for (const auto d : order) {
    auto here = std::min(copies[d], left);
    left -= here;
    std::vector<space_seat> seats;
    for (const auto c : classes) seats.push_back({c, d});
    if (const auto longer = std::min(here, more); longer > 0) {
      plan.groups.push_back({longer, share + 1, seats});
      here -= longer, more -= longer;
    }
    if (here > 0) plan.groups.push_back({here, share, std::move(seats)});
  }
  return plan;
}

alike_search::alike_search(const space_problem& p, const space_times& times, floor_table& floors,
                           const space_room& room, best_plans& best, planning_budget& budget)
    : problem_{p},
      times_{times},
      floors_{floors},
      room_{room},
      best_{best},
      budget_{budget},
      paths_{floors},
      rows_{problem_.space.searched_rows ? problem_.rows.size() : 1},
      spent_{floors.units() + best.units()} {
  for (std::uint32_t k = 0; k < problem_.kinds.size(); ++k) gpus_.push_back(room.gpus(k));
  for (const auto rows : problem_.rows) {
    const double m = problem_.microbatches(rows);
    auto& y = prices_.emplace_back(price_directions(gpus_, m));
    if (problem_.goal == space_goal::fastest && !problem_.max_dollars) continue;
    // Where GPUs may be left idle, those that are used are worth more than their part of the batch.
    double all = 0;
    const auto price = [&](std::size_t k) {
      return problem_.goal == space_goal::efficient ? 1 : problem_.kinds[k].price_per_hour;
    };
    for (std::size_t k = 0; k < gpus_.size(); ++k) all += price(k) * gpus_[k];
    if (!(all > 0)) continue;
    for (const double scale : {1, 2, 4, 8}) {
      auto& direction = y.emplace_back();
      for (std::size_t k = 0; k < gpus_.size(); ++k)
        direction.push_back(scale * m * price(k) / all);
    }
  }
}

bool alike_search::spend() {
  const auto now = units_ + paths_.units() + floors_.units() + best_.units();
  const auto units = now - spent_;
  spent_ = now;
  return budget_.spend(units);
}

void alike_search::run() {
  if (problem_.space.free_cut)
    collect_cuts();
  else
    add_even_cuts();
  std::vector<ranked_cut> cuts;
  for (const auto& [key, rough] : rough_) cuts.push_back({key.first, key.second, rough});
  std::ranges::stable_sort(cuts, {}, &ranked_cut::rough);
  run(std::move(cuts));
}

void alike_search::run(std::vector<ranked_cut> cuts) {
  cuts_ = std::move(cuts);
  for (const auto& cut : cuts_) {
    try_cut(cut);
    if (!spend()) break;
  }
  if (best_.all().empty() && problem_.space.mixed_pipelines) try_crossing();
  const auto first = best_.all();
  for (std::size_t i = 0; i < std::min<std::size_t>(first.size(), 8); ++i)
    offer_orders(best_, first[i].plan, few_orders);
  improve();
  if (!best_.all().empty() && spend()) offer_orders(best_, space_plan{best_.all().front().plan});
}

// From the best plan that was not yet tried, as long as there are such among the first few; then
// from those that are a little too slow.
void alike_search::improve() {
  const auto is_tried = [&](const valued_plan& v) {
    return std::ranges::any_of(tried_, [&](const space_plan& t) { return are_alike(t, v.plan); });
  };
  for (int rounds = 0; rounds < 24 && spend(); ++rounds) {
    auto from = best_.all();
    from.resize(std::min<std::size_t>(8, from.size()));
    for (auto& v : best_.near_limits(8)) from.push_back(std::move(v));
    const auto next = std::ranges::find_if_not(from, is_tried);
    if (next == from.end()) break;
    tried_.push_back(next->plan);
    move(next->plan);
  }
}

void alike_search::collect_cuts() {
  // Every fourth limit first, so that a short budget still sees all sizes of stages.
  for (const auto& [begin, step] : {std::pair{0, 4}, {2, 4}, {1, 2}})
    for (std::size_t r = 0; r < rows_; ++r) {
      const auto& limits = floors_.limits(r);
      for (auto i = static_cast<std::size_t>(begin); i < limits.size();
           i += static_cast<std::size_t>(step)) {
        if (budget_.left() < spent_ / 2) return;
        if (problem_.space.tensor_by_stage) {
          collect_cuts(r, limits[i], 0);
        } else {
          std::vector<std::uint32_t> degrees;
          for (const auto& c : problem_.classes) degrees.push_back(c.tensor);
          std::ranges::sort(degrees);
          degrees.erase(std::ranges::unique(degrees).begin(), degrees.end());
          for (const auto t : degrees) collect_cuts(r, limits[i], t);
        }
        if (!spend()) return;
      }
    }
}

void alike_search::collect_cuts(std::size_t rows_index, double limit_s, std::uint32_t tensor) {
  for (const auto& y : prices_[rows_index]) {
    paths_.run(rows_index, limit_s, limit_s, y, tensor);
    for (std::uint32_t stages = 1; stages <= paths_.max_stages(); ++stages) {
      if (!(paths_.cost(stages) < no_plan)) continue;
      const auto path = paths_.line(stages);
      const auto floor = line_floor(floors_, rows_index, path.firsts, path.classes);
      const cut_line line{path.classes, floor.way_s, floor.step_s};
      const auto room = room_of(path.classes);
      const double pipelines =
          std::min(std::max(room.all, 1U), problem_.microbatches(problem_.rows[rows_index]));
      add_cut(rows_index, path.firsts, rough_score(rows_index, path.firsts, line, pipelines));
      units_ += 40 + 10 * stages;
    }
  }
}

void alike_search::add_even_cuts() {
  for (std::size_t r = 0; r < rows_; ++r)
    for (std::uint32_t p = 1; p <= std::min(problem_.max_stages, problem_.pieces); ++p) {
      std::vector<std::uint32_t> firsts;
      for (std::uint32_t i = 0; i < p; ++i) firsts.push_back(i * problem_.pieces / p);
      add_cut(r, firsts, 0);
    }
}

void alike_search::add_cut(std::size_t rows_index, const std::vector<std::uint32_t>& firsts,
                           double rough) {
  const auto [at, added] = rough_.try_emplace({rows_index, firsts}, rough);
  if (!added) at->second = std::min(at->second, rough);
}

void alike_search::try_cut(const ranked_cut& cut) {
  std::vector<std::uint32_t> degrees{0};
  if (!problem_.space.tensor_by_stage) {
    degrees.clear();
    for (const auto& c : problem_.classes)
      if (std::ranges::find(degrees, c.tensor) == degrees.end()) degrees.push_back(c.tensor);
  }
  for (const auto t : degrees)
    for (const auto& line :
         lines_of_cut(floors_, cut.rows_index, cut.firsts, prices_[cut.rows_index], t, units_))
      try_line(cut.rows_index, cut.firsts, line);
}

alike_search::line_room alike_search::room_of(const std::vector<std::uint32_t>& classes) const {
  line_room room;
  for (std::uint32_t d = 0; d < problem_.datacenters; ++d) {
    room.copies.push_back(room_.copies(d, classes));
    room.all = problem_.space.several_datacenters ? room.all + room.copies.back()
                                                  : std::max(room.all, room.copies.back());
  }
  if (problem_.max_gpus)
    room.all = std::min(room.all, *problem_.max_gpus / gpus_of_line(problem_, classes));
  return room;
}

double alike_search::rough_s(std::size_t rows_index, const std::vector<std::uint32_t>& firsts,
                             const cut_line& line, double pipelines) const {
  const auto rows = problem_.rows[rows_index];
  double tail = 0;
  for (std::size_t i = 0; i < firsts.size(); ++i)
    tail = std::max(tail, times_.tail_floor_s(rows, line.classes[i], firsts[i],
                                              end_of(problem_, firsts, i) - firsts[i],
                                              static_cast<std::uint32_t>(pipelines)));
  const double share = std::max(1.0, problem_.microbatches(rows) / pipelines);
  return line.way_s + (share - 1) * line.step_s + tail;
}

double alike_search::rough_score(std::size_t rows_index, const std::vector<std::uint32_t>& firsts,
                                 const cut_line& line, double pipelines) const {
  const double s = rough_s(rows_index, firsts, line, pipelines);
  if (problem_.max_s && s > *problem_.max_s) return no_plan;
  const double dollars = s * pipelines * dollars_per_hour(problem_, line.classes) / 3600;
  if (problem_.max_dollars && dollars > *problem_.max_dollars) return no_plan;
  if (problem_.goal == space_goal::fastest) return s;
  return problem_.goal == space_goal::cheapest
             ? dollars
             : s * pipelines * gpus_of_line(problem_, line.classes);
}

/// Numbers of pipelines that are worth a try, largest first: those that divide the micro-batches,
/// or with shares of their own the smallest ones of each largest share.
std::vector<std::uint32_t> alike_search::pipeline_counts(std::size_t rows_index,
                                                         std::uint32_t max) const {
  const auto m = problem_.microbatches(problem_.rows[rows_index]);
  const bool only_fast = problem_.goal == space_goal::fastest && !problem_.max_dollars;
  const std::size_t wanted = only_fast ? 2 : 24;
  std::vector<std::uint32_t> out;
  max = std::min(max, m);
  if (max == 0) return out;
  for (auto share = (m + max - 1) / max; share <= m && out.size() < wanted; ++share) {
    const auto n = (m + share - 1) / share;
    if (!problem_.space.own_shares && m % share != 0) continue;
    if (out.empty() || out.back() != n) out.push_back(n);
  }
  return out;
}

void alike_search::try_line(std::size_t rows_index, const std::vector<std::uint32_t>& firsts,
                            const cut_line& line) {
  const auto room = room_of(line.classes);
  units_ += 40;
  for (const auto pipelines : pipeline_counts(rows_index, room.all)) {
    units_ += 10 + 5 * firsts.size();
    // The rough score is a lower bound: beyond the best plan's it is only for moves to begin at,
    // and for cuts that several kinds of pipelines may have.
    if (rough_score(rows_index, firsts, line, pipelines) < std::min(best_.worst(), near_best()))
      try_pipelines(rows_index, firsts, line, room, pipelines);
  }
}

void alike_search::try_pipelines(std::size_t rows_index, const std::vector<std::uint32_t>& firsts,
                                 const cut_line& line, const line_room& room,
                                 std::uint32_t pipelines) {
  const auto rows = problem_.rows[rows_index];
  for (const auto& set : smallest_sets(room.copies, pipelines)) {
    if (set.size() > 1 && !problem_.space.several_datacenters) continue;
    const double score = best_.offer(alike_plan(rows, problem_.microbatches(rows), firsts,
                                                line.classes, pipelines, room.copies, set),
                                     near_best());
    // Datacenters differ by their links alone.
    if (score < no_plan && score > 1.1 * best_.worst()) return;
  }
}

/// Where no datacenter has room for a whole pipeline: its stages, in order, in the first datacenter
/// of an order that has room for those of all pipelines.
void alike_search::try_crossing() {
  std::vector<std::uint32_t> order(problem_.datacenters);
  std::iota(order.begin(), order.end(), 0U);
  if (order.size() < 2) return;
  const auto fill = [&](std::uint32_t rows, const std::vector<std::uint32_t>& firsts,
                        const cut_line& line, std::uint32_t pipelines) {
    space_plan plan{rows, firsts, {{pipelines, problem_.microbatches(rows) / pipelines, {}}}};
    std::size_t at = 0;
    for (const auto c : line.classes)
      for (;; ++at) {
        if (at == order.size()) return;
        plan.groups[0].seats.push_back({c, order[at]});
        if (room_.holds(plan)) break;
        plan.groups[0].seats.pop_back();
      }
    best_.offer(plan);
  };
  for (const auto& cut : cuts_) {
    const auto rows = problem_.rows[cut.rows_index];
    for (const auto& line :
         lines_of_cut(floors_, cut.rows_index, cut.firsts, prices_[cut.rows_index], 0, units_))
      for (auto pipelines = problem_.microbatches(rows); pipelines > 0; --pipelines) {
        if (problem_.microbatches(rows) % pipelines != 0) continue;
        do fill(rows, cut.firsts, line, pipelines);
        while (order.size() <= 4 && std::ranges::next_permutation(order).found);
      }
    if (!spend()) return;
  }
}

void alike_search::move(const space_plan& from) {
  if (from.stages() > problem_.max_stages) return;  // a variant, whose floors are not known
  std::vector<std::uint32_t> classes;
  for (const auto& s : from.groups[0].seats) classes.push_back(s.cls);
  const auto at = std::ranges::find(problem_.rows, from.rows);
  const auto rows_index = static_cast<std::size_t>(at - problem_.rows.begin());
  if (problem_.space.free_cut) move_pieces(rows_index, from, classes);
  move_stages(rows_index, from, classes);
  for (std::size_t r = 0; r < rows_; ++r)
    if (r != rows_index) try_classes(r, from.firsts, classes);
  offer_orders(best_, from, few_orders);
}

void alike_search::move_pieces(std::size_t rows_index, const space_plan& from,
                               const std::vector<std::uint32_t>& classes) {
  for (std::size_t i = 1; i < from.firsts.size(); ++i)
    for (const int by : {-2, -1, 1, 2}) {
      auto firsts = from.firsts;
      const auto to = static_cast<std::int64_t>(firsts[i]) + by;
      if (to <= firsts[i - 1] || to >= end_of(problem_, firsts, i)) continue;
      firsts[i] = static_cast<std::uint32_t>(to);
      try_classes(rows_index, firsts, classes);
      // Both of its neighbours' cuts may have to follow.
      for (std::size_t j = i + 1; j < firsts.size(); ++j) {
        const auto next = static_cast<std::int64_t>(firsts[j]) + by;
        if (next <= firsts[j - 1] || next >= end_of(problem_, firsts, j)) break;
        firsts[j] = static_cast<std::uint32_t>(next);
        try_classes(rows_index, firsts, classes);
      }
    }
}

void alike_search::move_stages(std::size_t rows_index, const space_plan& from,
                               const std::vector<std::uint32_t>& classes) {
  const auto tensor = problem_.classes[classes.front()].tensor;
  for (std::size_t i = 0; i < classes.size(); ++i)
    for (std::uint32_t c = 0; c < problem_.classes.size(); ++c) {
      if (!problem_.space.tensor_by_stage && problem_.classes[c].tensor != tensor) continue;
      auto other = classes;
      other[i] = c;
      if (c != classes[i]) try_classes(rows_index, from.firsts, other);
      if (i + 1 < other.size() && std::exchange(other[i + 1], c) != c)
        try_classes(rows_index, from.firsts, other);
    }
}

void alike_search::try_classes(std::size_t rows_index, const std::vector<std::uint32_t>& firsts,
                               const std::vector<std::uint32_t>& classes) {
  if (!floors_.possible(rows_index)) return;
  const auto floor = line_floor(floors_, rows_index, firsts, classes);
  if (floor.way_s < no_plan && floor.step_s < no_plan)
    try_line(rows_index, firsts, {classes, floor.way_s, floor.step_s});
}

}  // namespace troupe::planners
