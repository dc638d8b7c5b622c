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
      choice_(cost_.size()),
      cheapest_(pieces_) {}

void line_paths::run(std::size_t rows_index, double limit_s, double worth_s,
                     const std::vector<double>& prices, std::uint32_t tensor, bool within_tails) {
  constexpr double never = std::numeric_limits<double>::infinity();
  all_ = floors_->of_rows(rows_index).data();
  shortest_ = floors_->shortest_steps(rows_index).data();
  const auto& twins = floors_->twins(rows_index);
  limit_s_ = limit_s;
  within_tails_ = within_tails;
  for (std::uint32_t c = 0; c < classes_; ++c) {
    const auto& k = floors_->problem().classes[c];
    const bool allowed = tensor == 0 || k.tensor == tensor;
    gpu_cost_[c] = allowed ? worth_s * prices[k.kind] * k.tensor : never;
  }
  std::ranges::fill(cost_, never);
  for (std::uint32_t behind = 0; behind < stages_; ++behind)
    for (std::uint32_t first = 0; first + behind < pieces_; first += grain_) {
      const auto twin = twins[behind * pieces_ + first];
      if (twin == first) fill_cheapest(behind, first);
      best_of(behind, first, cheapest_[twin]);
    }
  // A step is a sum and a comparison: less than a unit.
  units_ += steps_ / 3 + 1;
  steps_ %= 3;
}
// Most ranges have stages of all classes or of none.
void line_paths::set_tails(const std::vector<double>& tails, double max_tail_s) {
  tails_ = tails.data();
  max_tail_s_ = max_tail_s;
  tail_rules_.assign(std::size_t{pieces_} * (pieces_ + 1), tail_rule::none_keeps);
  for (std::uint32_t first = 0; first < pieces_; ++first)
    for (std::uint32_t count = 1; first + count <= pieces_; ++count) {
      const auto* tail = tails_ + floors_->place_of(0, first, count);
      const auto kept =
          std::count_if(tail, tail + classes_, [&](double s) { return s <= max_tail_s; });
      if (kept > 0)
        tail_rules_[range(first, count)] =
            kept == classes_ ? tail_rule::all_keep : tail_rule::some_keep;
    }
  steps_ += std::size_t{pieces_} * pieces_ * classes_ / 2;
}

line_paths::stage_choice line_paths::cheapest(const space_times::stage_floor* f,
                                              const double* tail) const {
  stage_choice out;
  for (std::uint32_t c = 0; c < classes_; ++c) {
    const double cost = f[c].way_s + gpu_cost_[c];
    const bool better = cost < out.cost && f[c].step_s <= limit_s_;
    if (better && !(tail && tail[c] > max_tail_s_)) out = {cost, c};
  }
  return out;
}

void line_paths::fill_cheapest(std::uint32_t behind, std::uint32_t first) {
  auto& row = cheapest_[first];
  row.assign(1, {});
  if (behind == 0) return;
  const auto max_count = pieces_ - first - behind;
  for (std::uint32_t count = 1; count <= max_count; ++count) {
    const auto place = floors_->place_of(behind, first, count);
    if (shortest_[place / classes_] > limit_s_) break;
    row.push_back(count % grain_ == 0 ? cheapest(all_ + place, nullptr) : stage_choice{});
    steps_ += classes_;
  }
}

void line_paths::best_of(std::uint32_t behind, std::uint32_t first,
                         const std::vector<stage_choice>& row) {
  auto& cost = cost_[at(behind, first)];
  auto& chosen = choice_[at(behind, first)];
  if (behind == 0) {
    const auto count = pieces_ - first;
    const auto* tail = within_tails_ ? tails_ + floors_->place_of(0, first, count) : nullptr;
    const auto k = cheapest(all_ + floors_->place_of(0, first, count), tail);
    cost = k.cost, chosen = {count, k.cls};
    steps_ += classes_;
    return;
  }
  const auto last =
      std::min<std::uint32_t>(pieces_ - first - behind, static_cast<std::uint32_t>(row.size()) - 1);
  const auto* rest = &cost_[at(behind - 1, first)];
  for (auto count = grain_; count <= last; count += grain_) {
    auto k = row[count];
    if (within_tails_) {
      const auto rule = tail_rules_[range(first, count)];
      if (rule == tail_rule::none_keeps) continue;
      if (rule == tail_rule::some_keep)
        k = cheapest(all_ + floors_->place_of(behind, first, count),
                     tails_ + floors_->place_of(0, first, count));
    }
    if (rest[count] + k.cost < cost) cost = rest[count] + k.cost, chosen = {count, k.cls};
  }
  steps_ += last / grain_ + 1;
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
