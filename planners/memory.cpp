#include "planners/memory.hpp"

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

double marp_bytes(const model& m, std::uint32_t global_batch, std::uint32_t data,
                  std::uint32_t tensor) {
  const double t = tensor;
  const double b = (std::uint64_t{global_batch} + data - 1) / data;  // samples of one replica
  const double fixed = 20 * marp_parameters(m) / t;
  if (!m.operators.empty()) {
    double sum = 0;
    for (const auto& op : m.operators) sum += op.output_bytes;
    return fixed + b * sum;
  }
  const double s = m.sequence, h = m.hidden, l = m.layers, a = m.heads;
  return fixed + s * b * h * l * (10 + 24 / t + 5 * a * s / (h * t));
}

}  // namespace troupe::planners
