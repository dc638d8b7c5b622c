#pragma once

#include <vector>

#include "messages/model.hpp"

// What a model is made of. This is the one place that knows a family (spec:
// docs/planners/cost_model.md).

namespace troupe::planners {

/// Totals over a model, for one sample (a sequence, an image).
struct model_shape {
  double parameters = 0;      // exact, biases, norms and head included
  double forward_flops = 0;   // matrix products only
  double reduces = 0;         // tensor-parallel all-reduces of one forward pass
  double reduced_bytes = 0;   // their bytes together, half precision
  double boundary_bytes = 0;  // activation between two stages, half precision
};

/// O(1) for transformers, O(operators) for models that are given so.
model_shape shape_of(const model& m);

/// The model as a chain of operators: as given, or a transformer as embedding, then attention and
/// MLP of each layer, then the head. Sums over it equal shape_of's.
std::vector<model_operator> expand(const model& m);

}  // namespace troupe::planners
