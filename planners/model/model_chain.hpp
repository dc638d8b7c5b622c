#pragma once

#include <cstdint>
#include <vector>

#include "messages/domain/model.hpp"

// The totals of a model, and the model as a chain of pieces. The only place that knows model
// families (docs/planners/cost_model.md).

namespace troupe::planners {

/// Work of a forward's kernels beside FLOPs, for one sample, not divided among the GPUs of a tensor
/// group.
struct kernel_counts {
  double products = 0;         // matrix products
  double stream = 0;           // numbers that pieces hand on
  double matrices = 0;         // numbers of attention matrices
  double attention_flops = 0;  // the products that make and use these
  double logits = 0;           // numbers
  // The last product of each layer, whose output no backward needs.
  double last_products = 0, last_flops = 0;

  void add(const kernel_counts& other, double times = 1);
  bool operator==(const kernel_counts&) const = default;
};

/// Totals over a model, for one sample (a sequence, an image).
struct model_shape {
  double parameters = 0;     // exact, biases, norms and head included
  double forward_flops = 0;  // matrix products only
  double reduces = 0;        // tensor-parallel all-reduces of one forward pass
  double reduced_bytes = 0;  // their total bytes, half precision
  kernel_counts kernels;
};

/// O(1) for transformers, O(operators) for models given as operators.
model_shape shape_of(const model& m);

/// A quantity of which GPUs that share a stage (tensor parallel) divide one part and replicate the
/// other.
struct divisible {
  double divided = 0, whole = 0;

  double for_one_of(double gpus) const { return divided / gpus + whole; }
  void add(const divisible& other, double times = 1);
};

/// A range of a model's pieces, for one sample.
struct chain_range {
  divisible flops;  // a forward pass, matrix products only
  divisible parameters;
  divisible kept_bytes;     // activations kept from its forward to its backward, half precision
  double output_bytes = 0;  // the last piece's, half precision
  kernel_counts kernels;
  double state_bytes = 0;  // of the optimizer, of a program's layers

  /// All but output_bytes.
  void add(const chain_range& other, double times = 1);
};

/// A model as the pieces that stages own. Of a transformer: its sublayers (attention with its
/// residual sum, then the MLP with its own; two per layer; the first with the embedding), and the
/// head, which a last stage may have alone. Of a model given as operators: these. Ranges are
/// differences of prefix sums of whole numbers below 2^53, and so exact. O(pieces) to construct.
class model_chain {
 public:
  /// `divided_words`: GPUs that share a stage divide the embedding and the head, too.
  explicit model_chain(const model& m, bool divided_words = false);

  /// The number of pieces, including the head.
  std::uint32_t size() const { return static_cast<std::uint32_t>(before_.size()) - 1; }
  /// O(1). Precondition: first + count <= size(), and count > 0.
  chain_range range(std::uint32_t first, std::uint32_t count) const;
  /// Parameters of a tied head or last layer: the last of several stages has a copy.
  double tied_parameters() const { return tied_parameters_; }
  bool has_divided_words() const { return divided_words_; }

 private:
  void add(const chain_range& piece);

  std::vector<chain_range> before_;  // prefix sums
  double tied_parameters_ = 0;
  bool divided_words_ = false;
};

/// Activations that a sublayer of a transformer keeps for its backward, of one sample, in half
/// precision.
divisible kept_of_sublayer(const model& m, bool attention);

/// FLOPs of the head's forward, of one sample; 0 for a model given as operators.
double head_flops(const model& m);

/// The model as a chain of operators: as given, or a transformer as embedding, then attention and
/// MLP of each layer, then the head. The sums equal those of shape_of.
std::vector<model_operator> expand(const model& m);

}  // namespace troupe::planners
