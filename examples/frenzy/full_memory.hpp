#pragma once

#include "messages/model.hpp"

/// Bytes a GPU of a GPT under Megatron-LM with Adam in mixed precision, counted tensor by tensor:
/// the yardstick for MARP's formula where no real peak was measured. `samples`: of one replica.
inline double full_bytes(const troupe::model& m, double samples, double tensor) {
  const double h = m.hidden, l = m.layers, s = m.sequence, a = m.heads, t = tensor;
  // The vocabulary is padded to a multiple of 128 in each member of the tensor group.
  const double rows =
      static_cast<double>((m.vocabulary + 128u * unsigned(t) - 1) / (128u * unsigned(t)));
  const double vocabulary = 128 * rows;  // of one member
  // Divided: QKV, attention's output, both matrices of the MLP, and the biases of the columns.
  // Whole in each member: the biases of the rows, both norms; and the position embedding.
  const double layer = (12 * h * h + 7 * h) / t + 6 * h;
  const double parameters = vocabulary * h + s * h + l * layer + 2 * h;
  // Weights 2, gradients 4 (accumulated in fp32), master weights 4, Adam's two moments 8.
  const double states = (2 + 4 + 4 + 8) * parameters;
  // Korthikanti et al., eq. 2, and what that leaves out beside the layers: the mask of the
  // embedding's dropout, the inputs of the last norm and of the head, and the fp32 logits.
  const double layers = s * samples * h * l * (10 + 24 / t + 5 * a * s / (h * t));
  const double ends = s * samples * (h + 2 * h + 2 * h + 4 * vocabulary);
  return states + layers + ends;
}
