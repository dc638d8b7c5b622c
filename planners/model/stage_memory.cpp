#include "planners/model/stage_memory.hpp"

#include "messages/base/folds.hpp"

namespace troupe::planners {

double marp_parameters(const model& m) {
  if (!m.operators.empty()) return sum_of(m.operators, &model_operator::parameters);
  const double h = m.hidden, l = m.layers, v = m.vocabulary;
  return v * h + l * (12 * h * h + 13 * h);
}

memory_parts states_of(const state_bytes& each, double parameters) {
  return {each.weight * parameters, each.gradient * parameters, each.optimizer * parameters};
}

memory_parts marp_memory(const model& m, std::uint32_t global_batch, std::uint32_t data,
                         std::uint32_t tensor) {
  const double t = tensor;
  const double b = (std::uint64_t{global_batch} + data - 1) / data;  // samples of one replica
  auto parts = states_of(marp_states, marp_parameters(m) / t);
  if (!m.operators.empty()) {
    parts.activations = b * sum_of(m.operators, &model_operator::output_bytes);
    return parts;
  }
  const double s = m.sequence, h = m.hidden, l = m.layers, a = m.heads;
  parts.activations = s * b * h * l * (10 + 24 / t + 5 * a * s / (h * t));
  return parts;
}

}  // namespace troupe::planners
