#include "actors/training/trainer/evaluations.hpp"

#include <algorithm>

namespace troupe::actors {

std::optional<evaluation> evaluation_of(const iteration_record& r) {
  if (!r.program) return {};
  const auto v = std::ranges::find(r.program->values, held_out_value, &named_value::name);
  if (v == r.program->values.end() || !(v->weight > 0)) return {};
  return evaluation{r.iteration, v->sum / v->weight};
}

void evaluations::add(const iteration_record& r) {
  const auto found = evaluation_of(r);
  if (!found) return;
  if (!best_ || found->loss < best_->loss) best_ = found;
}

}  // namespace troupe::actors
