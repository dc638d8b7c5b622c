#include "planners/search/space/small_plans.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace troupe::planners {

namespace {

std::vector<std::uint32_t> route_of(const space_group& g) {
  std::vector<std::uint32_t> route;
  for (const auto& s : g.seats) route.push_back(s.datacenter);
  return route;
}

/// Counts all plans, or values them, one cut after the other.
class every_plan {
 public:
  every_plan(const space_problem& p, const space_times& times, const space_room& room,
             std::uint64_t max, best_plans* best)
      : problem_{p}, times_{times}, room_{room}, left_{max}, best_{best} {}

  /// False: there are more.
  bool run() {
    const std::size_t rows = problem_.space.searched_rows ? problem_.rows.size() : 1;
    if (cuts(rows) > static_cast<double>(left_)) return false;
    for (std::size_t r = 0; r < rows && !too_many_; ++r) {
      plan_.rows = problem_.rows[r];
      microbatches_ = problem_.microbatches(plan_.rows);
      for (std::uint32_t p = 1; p <= std::min(problem_.max_stages, problem_.pieces); ++p) {
        plan_.firsts.assign(1, 0);
        if (problem_.space.free_cut) {
          cut(p);
          continue;
        }
        for (std::uint32_t i = 1; i < p; ++i) plan_.firsts.push_back(i * problem_.pieces / p);
        plans_of_cut();
      }
    }
    return !too_many_;
  }

 private:
  struct one_line {
    std::vector<space_seat> seats;
    std::vector<std::uint32_t> use;  // by limit of the room
    std::uint32_t gpus = 0;
  };

  /// Numbers of cuts and rows together.
  double cuts(std::size_t rows) const {
    double all = 0, of_stages = 1;
    for (std::uint32_t p = 1; p <= std::min(problem_.max_stages, problem_.pieces); ++p) {
      all += of_stages;
      if (problem_.space.free_cut) of_stages *= static_cast<double>(problem_.pieces - p) / p;
    }
    return all * static_cast<double>(rows);
  }

  /// Whether there is time for one more step: lines and parts of plans that lead to no plan count,
  /// too.
  bool step() {
    if (steps_ == 0)
      too_many_ = true;
    else if (!best_)
      --steps_;
    return !too_many_;
  }

  void cut(std::uint32_t stages) {
    if (plan_.firsts.size() == stages) {
      plans_of_cut();
      return;
    }
    const auto behind = stages - static_cast<std::uint32_t>(plan_.firsts.size());
    for (auto f = plan_.firsts.back() + 1; f + behind <= problem_.pieces; ++f) {
      plan_.firsts.push_back(f);
      cut(stages);
      plan_.firsts.pop_back();
    }
  }

  void plans_of_cut() {
    if (too_many_) return;
    lines_.clear();
    seats_.clear();
    add_lines();
    counts_.assign(lines_.size(), 0);
    units_.clear();
    for (const auto& l : room_.limits()) units_.push_back(l.units);
    gpus_left_ = problem_.max_gpus.value_or(std::numeric_limits<std::uint32_t>::max());
    choose(0, 0);
  }

  /// Whether a stage may be here, beside the ones before it.
  bool may_follow(const space_seat& s) const {
    if (!room_.has(s)) return false;
    if (seats_.empty()) return true;
    const auto& first = seats_.front();
    if (!problem_.space.mixed_pipelines && s.datacenter != first.datacenter) return false;
    if (!problem_.space.several_datacenters && s.datacenter != first.datacenter) return false;
    return problem_.space.tensor_by_stage ||
           problem_.classes[s.cls].tensor == problem_.classes[first.cls].tensor;
  }

  void add_lines() {
    if (!step()) return;
    if (seats_.size() == plan_.firsts.size()) {
      add_line();
      return;
    }
    for (std::uint32_t d = 0; d < problem_.datacenters; ++d)
      for (std::uint32_t c = 0; c < problem_.classes.size(); ++c) {
        if (!may_follow({c, d})) continue;
        seats_.push_back({c, d});
        add_lines();
        seats_.pop_back();
      }
  }

  void add_line() {
    if (!(times_.line_s({plan_.rows, plan_.firsts, seats_}, 1) <
          std::numeric_limits<double>::infinity()))
      return;
    one_line line{seats_, {}, 0};
    bool fits = true;
    for (const auto& l : room_.limits()) {
      std::uint32_t used = 0;
      for (const auto& s : seats_) used += room_.use(l, s);
      line.use.push_back(used);
      fits = fits && used <= l.units;
    }
    for (const auto& s : seats_) line.gpus += problem_.classes[s.cls].tensor;
    if (fits) lines_.push_back(std::move(line));
  }

  /// Whether pipelines of these two lines may be in one plan.
  bool go_together(const one_line& a, const one_line& b) const {
    for (std::size_t i = 0; i < a.seats.size(); ++i) {
      if (!problem_.space.several_kinds && a.seats[i].cls != b.seats[i].cls) return false;
      if (!problem_.space.several_datacenters && a.seats[i].datacenter != b.seats[i].datacenter)
        return false;
    }
    return problem_.space.tensor_by_stage ||
           problem_.classes[a.seats[0].cls].tensor == problem_.classes[b.seats[0].cls].tensor;
  }

  void choose(std::size_t at, std::uint32_t pipelines) {
    if (!step()) return;
    if (at == lines_.size()) {
      if (pipelines > 0) share(pipelines);
      return;
    }
    const auto& line = lines_[at];
    bool allowed = true;
    for (std::size_t i = 0; i < at && allowed; ++i)
      allowed = counts_[i] == 0 || go_together(lines_[i], line);
    auto room = allowed ? std::min(microbatches_ - pipelines, gpus_left_ / line.gpus) : 0;
    for (std::size_t l = 0; l < units_.size(); ++l)
      if (line.use[l] > 0) room = std::min(room, units_[l] / line.use[l]);
    for (std::uint32_t n = 0; n <= room; ++n) {
      counts_[at] = n;
      for (std::size_t l = 0; l < units_.size(); ++l) units_[l] -= n * line.use[l];
      gpus_left_ -= n * line.gpus;
      choose(at + 1, pipelines + n);
      for (std::size_t l = 0; l < units_.size(); ++l) units_[l] += n * line.use[l];
      gpus_left_ += n * line.gpus;
    }
    counts_[at] = 0;
  }

  /// Divides the micro-batches among the lines, and a line's evenly among its pipelines.
  void share(std::uint32_t pipelines) {
    if (problem_.space.own_shares) {
      divide(0, microbatches_, pipelines);
      return;
    }
    if (microbatches_ % pipelines != 0) return;
    plan_.groups.clear();
    for (std::size_t i = 0; i < lines_.size(); ++i)
      if (counts_[i] > 0)
        plan_.groups.push_back({counts_[i], microbatches_ / pipelines, lines_[i].seats});
    finish();
  }
  void divide(std::size_t at, std::uint32_t left, std::uint32_t pipelines) {
    if (at == 0) plan_.groups.clear();
    while (at < lines_.size() && counts_[at] == 0) ++at;
    if (at == lines_.size()) {
      if (left == 0) finish();
      return;
    }
    const auto n = counts_[at];
    const auto others = pipelines - n;
    // The last line takes what is left.
    for (auto m = others == 0 ? left : n; m + others <= left; ++m) {
      const auto before = plan_.groups.size();
      if (m % n > 0) plan_.groups.push_back({m % n, m / n + 1, lines_[at].seats});
      plan_.groups.push_back({n - m % n, m / n, lines_[at].seats});
      divide(at + 1, left - m, others);
      plan_.groups.resize(before);
      if (too_many_) return;
    }
  }

  void finish() {
    std::vector<std::vector<std::uint32_t>> routes;
    for (const auto& g : plan_.groups) routes.push_back(route_of(g));
    std::ranges::sort(routes);
    routes.erase(std::ranges::unique(routes).begin(), routes.end());
    std::uint64_t orders = 1;
    for (std::size_t i = 2; i <= routes.size(); ++i) orders *= i;
    if (orders > left_ || routes.size() > 6) {
      too_many_ = true;
      return;
    }
    left_ -= orders;
    if (best_) offer_orders(*best_, plan_);
  }

  const space_problem& problem_;
  const space_times& times_;
  const space_room& room_;
  std::uint64_t left_, steps_ = 2'000'000;
  best_plans* best_;
  bool too_many_ = false;
  space_plan plan_;
  std::uint32_t microbatches_ = 1;
  std::vector<space_seat> seats_;
  std::vector<one_line> lines_;
  std::vector<std::uint32_t> counts_, units_;
  std::uint32_t gpus_left_ = 0;
};

}  // namespace

double offer_orders(best_plans& best, const space_plan& plan, std::size_t all_of) {
  std::vector<std::pair<std::vector<std::uint32_t>, space_group>> groups;
  std::vector<std::vector<std::uint32_t>> order;
  for (const auto& g : plan.groups) groups.emplace_back(route_of(g), g);
  // Equal lines: those with more micro-batches first.
  std::ranges::stable_sort(groups, [](const auto& a, const auto& b) {
    return std::pair{a.second.seats, b.second.microbatches} <
           std::pair{b.second.seats, a.second.microbatches};
  });
  for (const auto& [route, g] : groups)
    if (std::ranges::find(order, route) == order.end()) order.push_back(route);
  const auto offer = [&] {
    space_plan p{plan.rows, plan.firsts, {}};
    for (const auto& route : order)
      for (const auto& [of, g] : groups)
        if (of == route) p.groups.push_back(g);
    return best.offer(p);
  };
  std::ranges::sort(order);
  double score = std::numeric_limits<double>::infinity();
  if (order.size() <= all_of) {
    do score = std::min(score, offer());
    while (std::ranges::next_permutation(order).found);
    return score;
  }
  score = offer();
  for (bool better = true; better;) {
    better = false;
    for (std::size_t i = 0; i + 1 < order.size(); ++i) {
      std::swap(order[i], order[i + 1]);
      const double other = offer();
      better = better || other < score;
      if (other < score)
        score = other;
      else
        std::swap(order[i], order[i + 1]);
    }
  }
  return score;
}

bool value_all_plans(const space_problem& p, const space_times& times, const space_room& room,
                     std::uint64_t max, best_plans& best) {
  if (!every_plan{p, times, room, max, nullptr}.run()) return false;
  every_plan{p, times, room, max, &best}.run();
  return true;
}

}  // namespace troupe::planners
