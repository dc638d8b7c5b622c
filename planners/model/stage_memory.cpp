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

double marp_bytes(const model& m, std::uint32_t global_batch, std::uint32_t data,
                  std::uint32_t tensor) {
  return marp_memory(m, global_batch, data, tensor).total();
}

memory_parts megatron_memory(const model& m, double samples, std::uint32_t tensor) {
  const double h = m.hidden, l = m.layers, s = m.sequence, a = m.heads, t = tensor;
  // The vocabulary is padded to a multiple of 128 per rank of the tensor group.
  const double vocabulary = 128.0 * ((m.vocabulary + 128 * tensor - 1) / (128 * tensor));
  // Divided: QKV, attention output, both matrices of the MLP, and the column-parallel biases.
  // Replicated: the row-parallel biases, both norms, and the position embedding.
  const double layer = (12 * h * h + 7 * h) / t + 6 * h;
  auto parts = states_of(megatron_states, vocabulary * h + s * h + l * layer + 2 * h);
  // Korthikanti et al., eq. 2, plus what it omits outside the layers: the dropout mask of the
  // embedding, the inputs of the last norm and of the head, and the fp32 logits.
  parts.activations = s * samples * h * l * (10 + 24 / t + 5 * a * s / (h * t));
  parts.ends = s * samples * (h + 2 * h + 2 * h + 4 * vocabulary);
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

double bytes_beside_inputs(const stage_part& p, const stage_load& load) {
  auto parts = memory_of(p, load);
  parts.inputs = 0;
  return parts.total();
}

}  // namespace troupe::planners
