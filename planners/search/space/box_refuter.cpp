#include "planners/search/space/box_refuter.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "planners/solver/linear_program.hpp"

// A plan as fast as T exists only if pipelines that each end within T do all micro-batches. Let
// lines have cuts of their own, and GPUs of a kind be in one place: that allows more. A line with
// the way S and the longest step u does no more than 1 + (T - tail - S) / u micro-batches, and no
// more than (T - tail) / u, where the tail is what the plan's end takes (sums, updates). If there
// are prices of a GPU of each kind, and of a pipeline, at which no line does more micro-batches
// than it costs, and all GPUs and pipelines together cost less than there are micro-batches, there
// is no such plan. A stage has no more micro-batches in flight than there are stages from it on, so
// that a line of p stages takes S for every p of its micro-batches, or part of them. Prices come
// from a linear program over the lines that were found so far; a shortest path for each limit on u
// finds a line that does more than it costs, or shows that there is none. Only that decides: the
// program's rounding cannot make the bound wrong. Paths may know nodes (joined_paths.hpp): a line
// whose sums take longer than what is beside them ends before all does by that difference.

namespace troupe::planners {

box_refuter::box_refuter(floor_table& floors, joined_paths& paths, const space_room& room,
                         std::size_t rows_index, planning_budget& budget, bool own_shares)
    : floors_{floors},
      paths_{paths},
      problem_{floors.problem()},
      rows_index_{rows_index},
      microbatches_{problem_.microbatches(problem_.rows[rows_index])},
      budget_{budget},
      own_shares_{own_shares} {
  for (std::uint32_t k = 0; k < problem_.kinds.size(); ++k) gpus_.push_back(room.gpus(k));
  const auto all = std::accumulate(gpus_.begin(), gpus_.end(), 0U);
  max_pipelines_ = std::min(all, microbatches_);
  set_early();
  // Wide ranges at first: where there is doubt they are divided. No line's longest step is below
  // the first limit.
  auto limits = floors.limits(rows_index);
  // Those are of stages without hops that leave a node.
  if (!limits.empty()) limits.back() += floors.hops_of_rows(rows_index).longest_step_s;
  for (std::size_t i = 0; i < limits.size();
       i = i + 1 < limits.size() ? std::min(i + 3, limits.size() - 1) : i + 1)
    ranges_.push_back(
        {ranges_.empty() ? limits[i] * (1 - 1e-12) : ranges_.back().limit_s, limits[i]});
}

bool box_refuter::refuted(double seconds, double max_price, const smallest_box& parts) {
  if (!floors_.possible(rows_index_)) return true;
  parts_ = parts;
  if (own_shares_)
    return refuted({seconds, 1, max_pipelines_, 0, unbounded, max_price}, longest_tail_s());
  for (std::uint32_t n = 1; n <= max_pipelines_; ++n)
    if (microbatches_ % n == 0 &&
        !refuted({seconds, n, n, 0, unbounded, max_price}, longest_tail_s()))
      return false;
  return true;
}

bool box_refuter::refuted(const plan_box& box, double longest_tail_s) {
  if (box.from_s >= box.seconds) return true;
  if (no_plan(box)) return true;
  if (budget_.exhausted()) return false;
  const double high = std::min({box.to_s, longest_tail_s, box.seconds});
  const double width = (high - box.from_s) / box.seconds;
  const bool many = box.to_pipelines > parts_.pipelines * box.from_pipelines;
  auto lower = box, upper = box;
  if (width > parts_.tail && (width > 4 * parts_.tail || !many)) {
    lower.to_s = upper.from_s = (box.from_s + high) / 2;
  } else if (many) {
    // Halves of the ratio.
    auto middle = box.from_pipelines;
    while (std::uint64_t{middle} * middle < std::uint64_t{box.from_pipelines} * box.to_pipelines)
      ++middle;
    middle = std::clamp(middle, box.from_pipelines, box.to_pipelines - 1);
    lower.to_pipelines = middle, upper.from_pipelines = middle + 1;
  } else {
    return false;
  }
  return refuted(lower, longest_tail_s) && refuted(upper, longest_tail_s);
}

double box_refuter::middle_tail_s(const plan_box& box, double part) {
  const double high = std::min({box.to_s, longest_tail_s(), box.seconds});
  return high - box.from_s > part * box.seconds ? (box.from_s + high) / 2 : unbounded;
}

double box_refuter::longest_tail_s() {
  double longest = 0;
  for (const double t : tails_of(max_pipelines_))
    if (t < unbounded) longest = std::max(longest, t);
  return longest;
}

const std::vector<double>& box_refuter::tails_of(std::uint32_t pipelines) {
  auto& out = tails_[pipelines];
  if (!out.empty()) return out;
  const auto n = problem_.pieces;
  out.assign(floors_.place_of(1, 0, 0), unbounded);
  for (std::uint32_t first = 0; first < n; ++first)
    for (std::uint32_t count = 1; first + count <= n; ++count)
      for (std::uint32_t c = 0; c < problem_.classes.size(); ++c)
        out[floors_.place_of(0, first, count) + c] =
            floors_.times().tail_floor_s(problem_.rows[rows_index_], c, first, count, pipelines);
  budget_.spend(2 * out.size());
  return out;
}

double box_refuter::done(const known_line& l, const plan_box& box) const {
  const auto stages = static_cast<std::uint32_t>(l.path.firsts.size());
  const auto whole = max_number(box, stages, l.way_s, l.step_s, l.step_s, l.sums_s);
  if (!own_shares_) return l.in_parts || whole >= share(box) ? 1 : 0;
  if (!l.in_parts) return whole;
  const double busy_s = box.seconds - box.from_s;
  const double end_s = box.seconds - std::max(box.from_s, l.sums_s);
  return std::min({1 + (end_s + early_s(stages, l.step_s) - l.way_s) / l.step_s,
                   max_microbatches(box, l.step_s), stages * busy_s / l.way_s});
}

double box_refuter::max_number(const plan_box& box, std::uint32_t stages, double way_s,
                               double step_s, double limit_s, double sums_s) const {
  const auto whole = [](double x) { return std::floor(x * (1 + 1e-9) + 1e-9); };
  const double busy_s = box.seconds - box.from_s;
  const double end_s = box.seconds - std::max(box.from_s, sums_s);
  const double by_steps = 1 + (end_s + early_s(stages, limit_s) - way_s) / step_s;
  return std::min(
      {whole(by_steps), whole(max_microbatches(box, step_s)), stages * whole(busy_s / way_s)});
}

double box_refuter::longest_span_s(const plan_box& box, const step_range& range,
                                   std::uint32_t stages, double number) const {
  return box.seconds + early_s(stages, range.limit_s) - (number - 1) * range.below_s;
}

double box_refuter::longest_way_s(const plan_box& box, const step_range& range,
                                  std::uint32_t stages, double number) const {
  return std::min(longest_span_s(box, range, stages, number) - box.from_s,
                  (box.seconds - box.from_s) / std::ceil(number / stages));
}

bool box_refuter::no_plan(const plan_box& box) {
  const auto& tails = tails_of(box.from_pipelines);
  if (box.to_s < unbounded) paths_.set_tails(tails, box.to_s);
  std::erase_if(lines_, [](const known_line& l) { return l.in_parts; });
  for (int rounds = 0; rounds < 60; ++rounds) {
    std::vector<double> gpu_prices(gpus_.size());
    double pipeline_price = 0;
    if (!set_prices(box, tails, gpu_prices, pipeline_price)) return false;
    // Prices that leave no doubt: all there is costs less than there are micro-batches.
    if (!add_lines(box, tails, gpu_prices, pipeline_price)) return true;
    if (budget_.exhausted()) return false;
  }
  return false;
}

bool box_refuter::set_prices(const plan_box& box, const std::vector<double>& tails,
                             std::vector<double>& gpu_prices, double& pipeline_price) {
  linear_program program;
  for (const auto n : gpus_) program.add_row(-linear_program::infinite, n);
  const auto pipelines = program.add_row(-linear_program::infinite, box.to_pipelines);
  const bool priced_too = box.max_price < unbounded;
  const auto price = program.add_row(-linear_program::infinite,
                                     priced_too ? box.max_price : linear_program::infinite);
  bool any = false;
  for (const auto& l : lines_) {
    const double m = done(l, box);
    if (m <= 0 || !keeps(l, tails, box.to_s)) continue;
    std::vector<linear_program::entry> entries{{pipelines, 1}, {price, priced(l)}};
    for (std::size_t k = 0; k < gpus_.size(); ++k)
      if (l.use[k] > 0) entries.push_back({k, l.use[k]});
    program.add_column(std::move(entries), -m);
    any = true;
  }
  budget_.spend(8'000 + 100 * lines_.size());
  std::vector<double> y(gpus_.size() + 2);
  if (any) {
    auto solver = linear_solver::of(program, false);
    if (!solver) return false;
    solver->relax();
    y = solver->row_prices();
    for (auto& v : y) v = std::max(0.0, -v);
  }
  if (!priced_too) y.back() = 0;
  double all = y[pipelines] * box.to_pipelines + (priced_too ? y[price] * box.max_price : 0);
  for (std::size_t k = 0; k < gpus_.size(); ++k) all += y[k] * gpus_[k];
  if (all >= wanted(box) * (1 - 1e-9)) return false;
  // Prices grow until all costs as much as that: then fewer lines do more than they cost.
  const double target = wanted(box) * (1 - 1e-9);
  if (all > 0) {
    for (auto& v : y) v *= target / all;
  } else {
    const auto held = std::accumulate(gpus_.begin(), gpus_.end(), 0U);
    for (std::size_t k = 0; k < gpus_.size(); ++k) y[k] = target / std::max(1U, held);
  }
  pipeline_price = y[pipelines];
  for (std::size_t k = 0; k < gpus_.size(); ++k)
    gpu_prices[k] = y[k] + (priced_too ? y[price] * price_of(k) : 0);
  return true;
}

bool box_refuter::keeps(const known_line& l, const std::vector<double>& tails, double max_s) const {
  for (std::size_t i = 0; i < l.path.firsts.size(); ++i) {
    const auto first = l.path.firsts[i];
    const auto end = i + 1 < l.path.firsts.size() ? l.path.firsts[i + 1] : problem_.pieces;
    if (tails[floors_.place_of(0, first, end - first) + l.path.classes[i]] > max_s) return false;
  }
  return true;
}

bool box_refuter::add_lines(const plan_box& box, const std::vector<double>& tails,
                            const std::vector<double>& gpu_prices, double pipeline_price) {
  const priced_box at{box, tails, gpu_prices, pipeline_price};
  bool found = false;
  int added = 0;
  for (std::size_t i = 0; i < ranges_.size() && added < 8; ++i) {
    // Where the last doubt was is where the next one is, too.
    const auto index = (i + doubtful_) % ranges_.size();
    if (budget_.exhausted()) return true;
    if (!doubt(at, index)) continue;
    if (!found) doubtful_ = index;
    found = true, ++added;
  }
  return found;
}

bool box_refuter::doubt(const priced_box& at, std::size_t index) {
  const auto range = ranges_[index];
  if (shortest_s(at, index) >
      at.box.seconds - at.box.from_s + early_s(early_.size(), range.limit_s))
    return false;
  if (!own_shares_) return equal_doubt(at, index);
  // The least work first. With its sums a line ends with all, without them before the tail.
  if (!may_be_worth(at, range, paths_kind::apart)) return false;
  if (joins_) {
    if (at.box.from_s > 0 && !may_be_worth(at, range, paths_kind::joined)) return false;
    if (!may_be_worth(at, range, paths_kind::last_sums)) return false;
    if (!may_be_worth(at, range, paths_kind::first_sums)) return false;
  }
  const auto stages = cheapest_by(range);
  auto line = line_of(paths_.line(stages));
  if (add_if_worth(at, line)) return true;
  if (numbers_refute(at, range)) return false;
  if (worth_more_) return true;
  return doubt_in_parts(at, index, std::move(line));
}

double box_refuter::shortest_s(const priced_box& at, std::size_t index) {
  if (ranges_[index].way_s < 0) {
    const auto before = paths_.units();
    paths_.run({rows_index_, ranges_[index].limit_s, 0, 0, false, false, false}, at.gpu_prices);
    budget_.spend(paths_.units() - before);
    ranges_[index].way_s = paths_.min_cost();
  }
  return ranges_[index].way_s;
}

bool box_refuter::doubt_in_parts(const priced_box& at, std::size_t index, known_line line) {
  const auto range = ranges_[index];
  if (line.step_s > range.below_s * 1.002 && ranges_.size() < max_ranges) {
    const double at_s = line.step_s * (1 - 1e-12);
    ranges_[index] = {range.below_s, at_s};
    ranges_.insert(ranges_.begin() + static_cast<std::ptrdiff_t>(index) + 1, {at_s, range.limit_s});
    const bool below = doubt(at, index);
    // Ranges may have become more in front of the second one.
    for (auto i = index + 1; i < ranges_.size() && ranges_[i].limit_s <= range.limit_s; ++i)
      if (ranges_[i].below_s >= at_s) return doubt(at, i) || below;
    return below;
  }
  line.in_parts = true;
  line.step_s = range.below_s;
  lines_.push_back(std::move(line));
  return true;
}

bool box_refuter::equal_doubt(const priced_box& at, std::size_t index) {
  const auto range = ranges_[index];
  const double all = share(at.box);
  if (all > max_microbatches(at.box, range.below_s) * (1 + 1e-9)) return false;
  const double way_s = at.box.seconds - at.box.from_s + early_s(early_.size(), range.limit_s) -
                       (all - 1) * range.below_s;
  if (way_s <= 0 || ranges_[index].way_s > way_s) return false;
  std::vector<std::uint32_t> stages;  // numbers of them that are not excluded yet
  run(at, range, 0, paths_kind::apart);
  for (std::uint32_t p = 1; p <= paths_.max_stages(); ++p)
    if (paths_.cost(p) <= longest_way_s(at.box, range, p, all)) stages.push_back(p);
  std::optional<known_line> nearest;
  for (const double part : {range.part, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 16.0}) {
    if (stages.empty()) return false;
    const double worth = part * way_s;
    double missed = 0;
    std::uint32_t nearest_stages = 0;
    for (const bool sums : {false, true}) {
      if (stages.empty() || (sums && !joins_)) break;
      run(at, range, worth, sums ? paths_kind::first_sums : paths_kind::joined);
      missed = -unbounded;
      std::erase_if(stages, [&](std::uint32_t p) {
        const double longest_s =
            sums ? longest_span_s(at.box, range, p, all) : longest_way_s(at.box, range, p, all);
        const double short_of = 1 - (paths_.cost(p) - longest_s) / worth - at.pipeline_price;
        if (short_of > missed) missed = short_of, nearest_stages = p;
        return short_of <= 0;
      });
    }
    if (stages.empty()) {
      ranges_[index].part = part;
      return false;
    }
    auto line = line_of(paths_.line(nearest_stages));
    if (add_if_worth(at, line)) return true;
    if (!nearest) nearest = std::move(line);
  }
  return doubt_in_parts(at, index, std::move(*nearest));
}

bool box_refuter::may_be_worth(const priced_box& at, const step_range& range, paths_kind kind) {
  run(at, range, range.below_s, kind);
  const auto stages = cheapest_by(range);
  const bool sums = kind == paths_kind::first_sums || kind == paths_kind::last_sums;
  const double end_s = at.box.seconds - (sums ? 0 : at.box.from_s);
  const double left_s = end_s + early_s(stages, range.limit_s);
  return paths_.cost(stages) < left_s + range.below_s * (1 - at.pipeline_price);
}

double box_refuter::run(const priced_box& at, const step_range& range, double worth_s,
                        paths_kind kind) {
  const auto before = paths_.units();
  if (!joins_) kind = paths_kind::apart;
  const bool last = kind == paths_kind::last_sums, sums = last || kind == paths_kind::first_sums;
  paths_.run({rows_index_, range.limit_s, worth_s, sums ? at.box.from_pipelines : 0, last,
              at.box.to_s < unbounded, kind != paths_kind::apart},
             at.gpu_prices);
  budget_.spend(paths_.units() - before);
  return paths_.min_cost();
}

std::uint32_t box_refuter::cheapest_by(const step_range& range) const {
  const auto left = [&](std::uint32_t p) { return paths_.cost(p) - early_s(p, range.limit_s); };
  std::uint32_t stages = 1;
  for (std::uint32_t p = 2; p <= paths_.max_stages(); ++p)
    if (left(p) < left(stages)) stages = p;
  return stages;
}

box_refuter::known_line box_refuter::line_of(joined_line path) {
  known_line l{path.way_s,
               path.step_s,
               std::max({0.0, path.first_sums_s, path.last_sums_s}),
               std::vector<double>(gpus_.size()),
               std::move(path),
               false};
  for (const auto c : l.path.classes) l.use[problem_.classes[c].kind] += problem_.classes[c].tensor;
  return l;
}

bool box_refuter::add_if_worth(const priced_box& at, const known_line& l) {
  double cost = at.pipeline_price;
  for (std::size_t k = 0; k < gpus_.size(); ++k) cost += l.use[k] * at.gpu_prices[k];
  worth_more_ = done(l, at.box) > cost * (1 + 1e-9) + 1e-9;
  if (worth_more_) lines_.push_back(l);
  return worth_more_;
}

bool box_refuter::numbers_refute(const priced_box& at, const step_range& range) {
  run(at, range, 0, paths_kind::apart);
  std::vector<open_numbers> all;
  for (std::uint32_t p = 1; p <= paths_.max_stages(); ++p)
    if (auto n = numbers_of(at.box, range, p, paths_.cost(p)); !n.empty())
      all.push_back({p, std::move(n)});
  // Paths that know nodes are more work: fewer of them.
  static constexpr double parts[]{1.0, 2.0, 0.5, 4.0, 0.25, 16.0, 1.4, 0.7, 0.1, 1000.0};
  for (const double part : std::span{parts}.first(joins_ ? 6 : std::size(parts))) {
    if (all.empty()) return true;
    const double worth = part * range.below_s;
    std::uint32_t stages = 0;
    for (const bool sums : {false, true}) {
      if (all.empty() || (sums && !joins_)) break;
      run(at, range, worth, sums ? paths_kind::first_sums : paths_kind::joined);
      double missed = 0;
      stages = 0;
      for (auto& of : all) {
        const double cost = paths_.cost(of.stages);
        std::erase_if(of.numbers, [&](const number_range& n) {
          const double short_of =
              n.to - (cost - (sums ? n.span_s : n.way_s)) / worth - at.pipeline_price;
          if (short_of > missed) missed = short_of, stages = of.stages;
          return short_of <= 0;
        });
      }
      std::erase_if(all, [](const open_numbers& of) { return of.numbers.empty(); });
    }
    if (stages > 0 && add_if_worth(at, line_of(paths_.line(stages)))) return false;
  }
  return all.empty();
}

std::vector<box_refuter::number_range> box_refuter::numbers_of(const plan_box& box,
                                                               const step_range& range,
                                                               std::uint32_t stages,
                                                               double shortest_s) const {
  std::vector<number_range> out;
  if (!(shortest_s < unbounded)) return out;
  const double last = max_number(box, stages, shortest_s, range.below_s, range.limit_s);
  // Single numbers at first, then within 2 %.
  for (double from = 1; from <= last;) {
    const double to = std::min(last, from + std::floor(from / 50));
    out.push_back(
        {to, longest_span_s(box, range, stages, from), longest_way_s(box, range, stages, from)});
    from = to + 1;
  }
  return out;
}

void box_refuter::set_early() {
  const auto& all = floors_.of_rows(rows_index_);
  const auto& hops = floors_.hops_of_rows(rows_index_);
  const auto each = floors_.place_of(1, 0, 0), classes = problem_.classes.size();
  for (std::size_t behind = 0; behind < all.size() / each; ++behind) {
    double part = behind > 0 ? early_.back() : 0;
    for (auto i = behind * each; i < (behind + 1) * each; ++i) {
      if (!(all[i].step_s > 0) || !(all[i].step_s < unbounded)) continue;
      // With any of its hops leaving the node.
      for (const double front : {0, 1})
        for (const double next : {0, 1}) {
          const auto &a = hops.in_front[i % classes], &b = hops.behind[i % classes];
          const double early_s =
              all[i].early_s + static_cast<double>(behind) * (front * a.early_s + next * b.early_s);
          part = std::max(part, early_s / (all[i].step_s + front * a.step_s + next * b.step_s));
        }
    }
    early_.push_back(part);
  }
}

}  // namespace troupe::planners
