#include "planners/search/space/line_paths.hpp"

#include <algorithm>
#include <limits>

namespace troupe::planners {

line_paths::line_paths(floor_table& floors)
    : floors_{&floors},
      pieces_{floors.problem().pieces},
      stages_{std::min(floors.problem().max_stages, floors.problem().pieces)},
      grain_{floors.problem().grain},
      classes_{static_cast<std::uint32_t>(floors.problem().classes.size())},
      gpu_cost_(classes_),
      cost_(std::size_t{stages_} * (pieces_ + 1)),
      choice_(cost_.size()) {}

void line_paths::run(std::size_t rows_index, double limit_s, double worth_s,
                     const std::vector<double>& prices, std::uint32_t tensor,
                     const std::vector<double>& tails, double max_tail_s) {
  const auto& floors = floors_->of_rows(rows_index);
  shortest_ = floors_->shortest_steps(rows_index).data();
  for (std::uint32_t c = 0; c < classes_; ++c) {
    const auto& k = floors_->problem().classes[c];
    const bool allowed = tensor == 0 || k.tensor == tensor;
    gpu_cost_[c] =
        allowed ? worth_s * prices[k.kind] * k.tensor : std::numeric_limits<double>::infinity();
  }
  std::ranges::fill(cost_, std::numeric_limits<double>::infinity());
  for (std::uint32_t behind = 0; behind < stages_; ++behind)
    for (std::uint32_t first = 0; first + behind < pieces_; first += grain_)
      best_of(behind, first, floors, limit_s, tails, max_tail_s);
}

void line_paths::best_of(std::uint32_t behind, std::uint32_t first,
                         const std::vector<space_times::stage_floor>& floors, double limit_s,
                         const std::vector<double>& tails, double max_tail_s) {
  auto& cost = cost_[at(behind, first)];
  auto& chosen = choice_[at(behind, first)];
  const std::uint32_t max_count = pieces_ - first - behind;
  const auto min_count = behind == 0 ? max_count : grain_;
  for (std::uint32_t count = min_count; count <= max_count; count += grain_) {
    if (shortest_[floors_->place_of(behind, first, count) / classes_] > limit_s) break;
    const double rest = behind == 0 ? 0 : cost_[at(behind - 1, first + count)];
    if (!(rest < cost)) continue;
    const auto* f = &floors[floors_->place_of(behind, first, count)];
    const auto* tail = tails.empty() ? nullptr : &tails[floors_->place_of(0, first, count)];
    units_ += 1 + classes_ / 4;
    for (std::uint32_t c = 0; c < classes_; ++c) {
      if (f[c].step_s > limit_s || (tail && tail[c] > max_tail_s)) continue;
      const double all = rest + f[c].way_s + gpu_cost_[c];
      if (all < cost) cost = all, chosen = {count, c};
    }
  }
}

double line_paths::min_cost() const {
  double smallest = std::numeric_limits<double>::infinity();
  for (std::uint32_t p = 1; p <= stages_; ++p) smallest = std::min(smallest, cost(p));
  return smallest;
}

path_line line_paths::line(std::uint32_t stages) const {
  path_line out{cost(stages), {}, {}};
  std::uint32_t first = 0;
  for (auto behind = stages; behind-- > 0;) {
    const auto& k = choice_[at(behind, first)];
    out.firsts.push_back(first);
    out.classes.push_back(k.cls);
    first += k.count;
  }
  return out;
}

}  // namespace troupe::planners
