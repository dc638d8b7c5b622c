#include "actors/training/trainer/evaluations.hpp"

#include <algorithm>

#include "gpu/examples/tuning_rows.hpp"

namespace troupe::actors {

std::optional<evaluation> evaluation_of(const iteration_record& r) {
  if (!r.program) return {};
  const auto v = std::ranges::find(r.program->values, held_out_value, &named_value::name);
  if (v == r.program->values.end() || !(v->weight > 0)) return {};
  return evaluation{r.iteration, v->sum / v->weight};
}

evaluations::evaluations(const training& how) {
  if (!how.target_loss || !how.program) return;
  const auto read = gpu::tuning_of(*how.program);
  if (!read || !*read) return;
  target_ = how.target_loss;
  every_ = (*read)->evaluate_every;
}

std::optional<held_out_losses> evaluations::losses() const {
  if (!newest_) return {};
  return held_out_losses{newest_->iteration, newest_->loss, best_->iteration, best_->loss};
}

std::optional<evaluation> evaluations::reached(std::uint64_t iteration) const {
  if (!target_ || !newest_ || newest_->iteration != iteration || newest_->loss > *target_)
    return {};
  return newest_;
}

std::uint64_t evaluations::next_end(std::uint64_t done, std::uint64_t total) const {
  return every_ > 0 ? std::min(total, done - done % every_ + every_) : total;
}

void evaluations::add(const iteration_record& r) {
  const auto found = evaluation_of(r);
  if (!found) return;
  newest_ = found;
  if (!best_ || found->loss < best_->loss) best_ = found;
}

}  // namespace troupe::actors
