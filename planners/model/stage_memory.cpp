#include "planners/model/stage_memory.hpp"

namespace troupe::planners {

double marp_parameters(const model& m) {
  if (!m.operators.empty()) {
    double sum = 0;
    for (const auto& op : m.operators) sum += op.parameters;
    return sum;
  }
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
    double sum = 0;
    for (const auto& op : m.operators) sum += op.output_bytes;
    parts.activations = b * sum;
    return parts;
  }
  const double s = m.sequence, h = m.hidden, l = m.layers, a = m.heads;
  parts.activations = s * b * h * l * (10 + 24 / t + 5 * a * s / (h * t));
  return parts;
}

memory_parts memory_of(const stage_part& p, const stage_load& load) {
  const double whole = load.recompute ? 1 : load.held;  // micro-batches with all activations
  auto parts = states_of(marp_states, p.parameters);
  parts.inputs = input_bytes(p, load);
  parts.activations = load.rows * whole * p.activation_bytes;
  return parts;
}

double input_bytes(const stage_part& p, const stage_load& load) {
  return load.recompute ? double{1} * load.rows * load.held * p.output_bytes : 0;
}

}  // namespace troupe::planners
