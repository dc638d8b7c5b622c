#include "planners/search/space/space_bound.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "planners/search/space/floor_table.hpp"
#include "planners/search/space/line_paths.hpp"
#include "planners/search/space/space_room.hpp"
#include "planners/solver/linear_program.hpp"

// A plan as fast as T exists only if pipelines that each end within T do all micro-batches. Let
// lines have cuts of their own, and GPUs of a kind be in one place: that allows more. A line with
// the way S and the longest step u does no more than 1 + (T - tail - S) / u micro-batches, where
// the tail is what the plan's end takes (sums, updates). If there are prices of a GPU of each kind,
// and of a pipeline, at which no line does more micro-batches than it costs, and all GPUs and
// pipelines together cost less than there are micro-batches, there is no such plan. Prices come
// from a linear program over the lines that were found so far; a shortest path for each limit on u
// finds a line that does more than it costs, or shows that there is none. Only that decides: the
// program's rounding cannot make the bound wrong.

namespace troupe::planners {

namespace {

constexpr double unbounded = std::numeric_limits<double>::infinity();

/// Plans whose seconds are at most `seconds`, with from_pipelines to to_pipelines pipelines, whose
/// tail is from from_s to to_s, and whose price, in the goal's unit, is at most max_price.
struct plan_box {
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
  box_refuter(floor_table& floors, line_paths& paths, const space_room& room,
              std::size_t rows_index, planning_budget& budget)
      : floors_{floors},
        paths_{paths},
        problem_{floors.problem()},
        rows_index_{rows_index},
        microbatches_{problem_.microbatches(problem_.rows[rows_index])},
        budget_{budget} {
    for (std::uint32_t k = 0; k < problem_.kinds.size(); ++k) gpus_.push_back(room.gpus(k));
    const auto all = std::accumulate(gpus_.begin(), gpus_.end(), 0U);
    max_pipelines_ = std::min(all, microbatches_);
    // No stage's step is shorter than the first limit allows.
    for (const auto b : floors.limits(rows_index))
      ranges_.push_back({ranges_.empty() ? b * (1 - 1e-12) : ranges_.back().limit_s, b});
  }

  /// False: it was not shown, or the budget is exhausted. `parts`: how small the boxes are that it
  /// is tried with.
  bool refuted(double seconds, double max_price, const smallest_box& parts) {
    if (!floors_.possible(rows_index_)) return true;
    parts_ = parts;
    const auto& tails = tails_of(max_pipelines_);
    double longest = 0;
    for (const double t : tails)
      if (t < unbounded) longest = std::max(longest, t);
    return refuted({seconds, 1, max_pipelines_, 0, unbounded, max_price}, longest);
  }

 private:
  /// Lines whose longest step is above `below_s` and at most `limit_s`.
  struct step_range {
    double below_s = 0, limit_s = 0;
  };
  /// A line as the shortest paths find it.
  struct known_line {
    double way_s = 0, step_s = 0;
    std::vector<double> use;  // GPUs by kind
    path_line path;
    bool in_parts = false;  // it is taken to do parts of micro-batches, too
  };

  bool refuted(const plan_box& box, double longest_tail_s) {
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

  /// By place_of(0, first, count) and class.
  const std::vector<double>& tails_of(std::uint32_t pipelines) {
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

  double price_of(std::size_t kind) const {
    return problem_.goal == space_goal::efficient ? 1 : problem_.kinds[kind].price_per_hour;
  }
  double priced(const known_line& l) const {
    double price = 0;
    for (std::size_t k = 0; k < gpus_.size(); ++k) price += l.use[k] * price_of(k);
    return price;
  }
  /// What a line can do of the micro-batches by the end of a box, at most.
  static double done(const known_line& l, const plan_box& box) {
    const double m = 1 + (box.seconds - box.from_s - l.way_s) / l.step_s;
    return l.in_parts ? m : std::floor(m * (1 + 1e-12) + 1e-9);
  }

  bool no_plan(const plan_box& box) {
    const auto& tails = tails_of(box.from_pipelines);
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

  /// Prices at which everything costs a little less than there are micro-batches, by the lines that
  /// are known; false: these can do all micro-batches.
  bool set_prices(const plan_box& box, const std::vector<double>& tails,
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
    if (all >= microbatches_ * (1 - 1e-9)) return false;
    // Prices grow until all costs as much as that: then fewer lines do more than they cost.
    const double target = microbatches_ * (1 - 1e-9);
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

  bool keeps(const known_line& l, const std::vector<double>& tails, double max_s) const {
    for (std::size_t i = 0; i < l.path.firsts.size(); ++i) {
      const auto first = l.path.firsts[i];
      const auto end = i + 1 < l.path.firsts.size() ? l.path.firsts[i + 1] : problem_.pieces;
      if (tails[floors_.place_of(0, first, end - first) + l.path.classes[i]] > max_s) return false;
    }
    return true;
  }

  /// Adds a line that does more than it costs for each limit that has one; false: there is none.
  bool add_lines(const plan_box& box, const std::vector<double>& tails,
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

  struct priced_box {
    const plan_box& box;
    const std::vector<double>& tails;
    const std::vector<double>& gpu_prices;
    double pipeline_price = 0;
  };

  /// Whether a line of this range may do more than it costs: then it is added.
  bool doubt(const priced_box& at, std::size_t index) {
    const auto range = ranges_[index];
    const double left_s = at.box.seconds - at.box.from_s;
    if (!(run(at, range, range.below_s) < left_s + range.below_s * (1 - at.pipeline_price)))
      return false;
    auto line = line_of(cheapest_path());
    if (add_if_worth(at, line)) return true;
    if (whole_numbers_refute(at, range)) return false;
    if (worth_more_) return true;
    // The doubt is about steps shorter than this line's: those above them and those below are
    // looked at apart.
    if (line.step_s > range.below_s * 1.002 && ranges_.size() < max_ranges) {
      const double at_s = line.step_s * (1 - 1e-12);
      ranges_[index].limit_s = at_s;
      ranges_.insert(ranges_.begin() + static_cast<std::ptrdiff_t>(index) + 1,
                     {at_s, range.limit_s});
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

  /// The smallest cost of a line at a worth of the prices.
  double run(const priced_box& at, const step_range& range, double worth_s) {
    const auto before = paths_.units();
    const bool all_tails = at.box.to_s == unbounded;
    paths_.run(rows_index_, range.limit_s, worth_s, at.gpu_prices, 0,
               all_tails ? no_tails_ : at.tails, at.box.to_s);
    budget_.spend(paths_.units() - before);
    return paths_.min_cost();
  }
  path_line cheapest_path() const {
    std::uint32_t stages = 1;
    for (std::uint32_t p = 2; p <= paths_.max_stages(); ++p)
      if (paths_.cost(p) < paths_.cost(stages)) stages = p;
    return paths_.line(stages);
  }
  known_line line_of(path_line path) {
    const auto floor = line_floor(floors_, rows_index_, path.firsts, path.classes);
    known_line l{floor.way_s, floor.step_s, std::vector<double>(gpus_.size()), std::move(path),
                 false};
    for (const auto c : l.path.classes)
      l.use[problem_.classes[c].kind] += problem_.classes[c].tensor;
    return l;
  }
  bool add_if_worth(const priced_box& at, const known_line& l) {
    double cost = at.pipeline_price;
    for (std::size_t k = 0; k < gpus_.size(); ++k) cost += l.use[k] * at.gpu_prices[k];
    worth_more_ = done(l, at.box) > cost * (1 + 1e-9) + 1e-9;
    if (worth_more_) lines_.push_back(l);
    return worth_more_;
  }

  /// Whether no line does more micro-batches than it costs, since none does a part of one: for each
  /// number m of them, a line that does so many has a way of at most left - (m - 1) u, and by some
  /// worth of prices costs m. A line that does more after all is added.
  bool whole_numbers_refute(const priced_box& at, const step_range& range) {
    const double below = range.below_s;
    constexpr double max_number = 16;
    const double left_s = at.box.seconds - at.box.from_s;
    const double shortest_s = run(at, range, 0);
    if (shortest_s > left_s) return true;
    const double last = std::floor((1 + (left_s - shortest_s) / below) * (1 + 1e-12) + 1e-9);
    if (last > max_number) return false;
    std::vector<bool> shown(static_cast<std::size_t>(last) + 1);
    for (const double part : {0.25, 0.5, 1.0, 2.0, 4.0, 16.0, 1000.0}) {
      const double worth = part * below, cost = run(at, range, worth);
      if (add_if_worth(at, line_of(cheapest_path()))) return false;
      bool all = true;
      for (double m = 1; m <= last; ++m) {
        const auto i = static_cast<std::size_t>(m);
        const double dearest = (cost - (left_s - (m - 1) * below)) / worth;
        shown[i] = shown[i] || dearest + at.pipeline_price >= m;
        all = all && shown[i];
      }
      if (all) return true;
    }
    return false;
  }

  floor_table& floors_;
  line_paths& paths_;
  const space_problem& problem_;
  std::size_t rows_index_;
  std::uint32_t microbatches_, max_pipelines_ = 1;
  planning_budget& budget_;
  std::vector<std::uint32_t> gpus_;  // by kind
  std::map<std::uint32_t, std::vector<double>> tails_;
  smallest_box parts_;
  static constexpr std::size_t max_ranges = 400;
  std::vector<step_range> ranges_;
  std::vector<known_line> lines_;
  std::size_t doubtful_ = 0;
  bool worth_more_ = false;       // the last line that was tried was added
  std::vector<double> no_tails_;  // empty
};

class bound_search {
 public:
  bound_search(const space_problem& p, const space_times& times, planning_budget& budget)
      : problem_{p}, room_{p}, floors_{p, times, room_}, paths_{floors_}, budget_{budget} {
    for (std::size_t r = 0; r < p.rows.size(); ++r)
      rows_.emplace_back(floors_, paths_, room_, r, budget);
  }

  double run(double best) {
    if (problem_.goal == space_goal::fastest) return bisect(best, &bound_search::none_as_fast);
    // From where on there may be plans at all: roughly.
    fastest_s_ = 1e-6;
    while (fastest_s_ < 1e9 && !budget_.exhausted() && none_as_fast(2 * fastest_s_))
      fastest_s_ *= 2;
    return bisect(best, &bound_search::none_as_cheap);
  }

 private:
  bool none_as_fast(double seconds) {
    return std::ranges::all_of(rows_,
                               [&](auto& r) { return r.refuted(seconds, unbounded, parts_); });
  }
  /// A plan of at most that score has, in any time, no dearer GPUs than score / time.
  bool none_as_cheap(double score) {
    double cheapest = unbounded;
    for (std::uint32_t k = 0; k < problem_.kinds.size(); ++k) {
      const bool is_priced = problem_.goal == space_goal::cheapest;
      if (room_.gpus(k) > 0)
        cheapest = std::min(cheapest, is_priced ? problem_.kinds[k].price_per_hour / 3600 : 1.0);
    }
    // One GPU of the cheapest kind, at least, all the time.
    const double last =
        std::min(problem_.max_s.value_or(unbounded), cheapest > 0 ? score / cheapest : unbounded);
    if (!(last < unbounded) || !(fastest_s_ > 0)) return false;
    for (double from = fastest_s_; from < last;) {
      const double to = std::min(last, (1 + 5 * parts_.tail) * from);
      const double per_s = score / from;
      const double price = problem_.goal == space_goal::cheapest ? per_s * 3600 : per_s;
      if (!std::ranges::all_of(rows_, [&](auto& r) { return r.refuted(to, price, parts_); }))
        return false;
      from = to;
    }
    return true;
  }

  /// The largest value, at most `best`, that could be refuted: first with few boxes, then with more
  /// of them.
  double bisect(double best, bool (bound_search::*refuted)(double)) {
    double low = 0;
    if (!(best < unbounded)) {
      // No plan is known: as large as it can be shown to be.
      best = 1e-3;
      while (best < 1e9 && !budget_.exhausted() && (this->*refuted)(best)) low = best, best *= 2;
    }
    for (const auto& parts : {smallest_box{0.04, 2}, {0.01, 1.25}, {0.004, 1.1}}) {
      parts_ = parts;
      double high = best;
      for (int i = 0; i < 8 && !budget_.exhausted() && high - low > 0.004 * best; ++i) {
        // Bounds are mostly near the best plan: there first.
        const double middle = i == 0 && low < 0.75 * high ? 0.75 * high : (low + high) / 2;
        ((this->*refuted)(middle) ? low : high) = middle;
      }
    }
    return low;
  }

  const space_problem& problem_;
  space_room room_;
  floor_table floors_;
  line_paths paths_;
  planning_budget& budget_;
  std::vector<box_refuter> rows_;
  smallest_box parts_;
  double fastest_s_ = 0;
};

}  // namespace

double score_bound(const space_problem& p, const space_times& times, double best,
                   planning_budget& budget) {
  return bound_search{p, times, budget}.run(best);
}

}  // namespace troupe::planners
