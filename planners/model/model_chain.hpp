#pragma once

#include <cstdint>
#include <vector>

#include "messages/model.hpp"

// What a model is made of, as totals and as a chain of pieces. This is the one place that knows a
// family (docs/planners/cost_model.md).

namespace troupe::planners {

/// Totals over a model, for one sample (a sequence, an image).
struct model_shape {
  double parameters = 0;     // exact, biases, norms and head included
  double forward_flops = 0;  // matrix products only
  double reduces = 0;        // tensor-parallel all-reduces of one forward pass
  double reduced_bytes = 0;  // their bytes together, half precision
};

/// O(1) for transformers, O(operators) for models that are given so.
model_shape shape_of(const model& m);

/// What GPUs that share a stage (tensor parallel) divide among them, and what each of them has
/// whole.
struct divisible {
  double divided = 0, whole = 0;

  double for_one_of(double gpus) const { return divided / gpus + whole; }
  divisible& operator+=(const divisible& other);
  divisible& operator-=(const divisible& other);
};

/// A range of a model's pieces, for one sample.
struct chain_range {
  divisible flops;  // of a forward pass, matrix products only
  divisible parameters;
  divisible kept_bytes;     // activations kept from its forward to its backward, half precision
  double output_bytes = 0;  // what the last piece hands on, half precision
};

/// A model as the pieces that stages can own: of a transformer its sublayers (attention with its
/// residual sum, then the MLP with its own; two a layer; the first with the embedding), and the
/// head, which a last stage may have alone; of a model that is given as operators those. Ranges are
/// sums of whole numbers below 2^53 wherever a model's sizes are, and so exact. O(pieces) to make.
class model_chain {
 public:
  explicit model_chain(const model& m);

  /// Pieces, the head among them. Ranges are of these.
  std::uint32_t size() const { return static_cast<std::uint32_t>(before_.size()) - 1; }
  /// O(1). Precondition: first + count <= size(), and count > 0.
  chain_range range(std::uint32_t first, std::uint32_t count) const;
  /// Parameters of a head that is the embedding: the last of several stages has a copy.
  double tied_parameters() const { return tied_parameters_; }

 private:
  void add(const chain_range& piece);

  std::vector<chain_range> before_;  // sums of the pieces before each, and of all
  double tied_parameters_ = 0;
};

/// The model as a chain of operators: as given, or a transformer as embedding, then attention and
/// MLP of each layer, then the head. Sums over it equal shape_of's.
std::vector<model_operator> expand(const model& m);

}  // namespace troupe::planners
