#pragma once

#include <cstdint>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/model/model_chain.hpp"

// Costs of every range of the model on every GPU type, for the searches over orders and cuts
// (docs/planners/plan_search.md). They look at the same ranges thousands of times, so the cost
// model (docs/planners/cost_model.md) and the memory model are evaluated once per range.

namespace troupe::planners {

/// Costs of a stage with one range of the model, for each of its GPUs.
struct range_costs {
  double forward_s = 0, recompute_s = 0, backward_s = 0;  // per micro-batch
  double update_s = 0, gradients_s = 0;                   // per iteration
  double gradient_bytes = 0;                              // summed with its peers
  double tied_bytes = 0;             // the part of them that both ends of the pipeline sum
  double activation_bytes = 0;       // per micro-batch, to the next stage
  double bytes = 0, bytes_each = 0;  // memory without micro-batches, and for each one in flight

  double step_s() const { return forward_s + recompute_s + backward_s; }
};

/// Lower bounds over all ranges of a type's step times, in seconds per forward FLOP of a sample in
/// the range. Efficiency curves and profiles are not proportional to FLOPs, so a bound that must
/// hold for any cut needs the best range's.
struct cost_floor {
  double forward_s = 0, recompute_s = 0, backward_s = 0;
};

/// For micro-batches of `rows` samples on stages of `tensor` GPUs each, in `pipelines` pipelines,
/// which sum their gradients if there are several. O(types * pieces^2) evaluations of the cost
/// model; for a transformer O(types * pieces), as its ranges differ only in their length and first
/// kind of piece.
class stage_table {
 public:
  /// A type that stages can be on, and the link over which the GPUs of a stage sum.
  struct gpus_of_stage {
    gpu_index gpu = 0;
    link inside;
    double speed = 1;  // of their nodes, where that is emulated
  };
  stage_table(const cluster& c, const job_spec& job, std::uint32_t tensor, std::uint32_t rows,
              const std::vector<gpus_of_stage>& types, std::uint32_t pipelines = 1);

  /// Pieces that stages can own. size() is one more for a transformer: its last stage may have the
  /// head alone, which is no piece.
  std::uint32_t pieces() const { return pieces_; }
  std::uint32_t size() const { return size_; }
  std::size_t types() const { return middle_floors_.size(); }
  /// Whether pieces are of two kinds by turns (a transformer's attention and MLP). Then a larger
  /// range needs more memory than one that it contains.
  bool homogeneous() const { return homogeneous_; }
  /// Costs of a stage with others behind it. Precondition: count > 0 and first + count < size().
  const range_costs& middle(std::size_t type, std::uint32_t first, std::uint32_t count) const {
    return middle_[(type * firsts_ + first_class(first)) * size_ + count];
  }
  /// Costs of the last stage, with everything from `first` on. Precondition: first < size().
  const range_costs& last(std::size_t type, std::uint32_t first) const {
    return last_[type * size_ + first];
  }
  /// Forward FLOPs of a sample from the piece `first` on; 0 for size().
  double work_from(std::uint32_t first) const { return work_from_[first]; }

  const cost_floor& middle_floor(std::size_t type) const { return middle_floors_[type]; }
  const cost_floor& last_floor(std::size_t type) const { return last_floors_[type]; }
  /// The smallest and the largest activations that a stage sends to the next, bytes per
  /// micro-batch.
  double min_activation_bytes() const { return min_activation_bytes_; }
  double max_activation_bytes() const { return max_activation_bytes_; }

 private:
  /// Ranges of a transformer that begin with the same kind of piece cost the same; only the first
  /// stage also has the embedding. Classes: 0 (embedding), 1, 2 (odd and even first piece).
  std::uint32_t first_class(std::uint32_t first) const {
    return homogeneous_ && first > 2 ? 2 - first % 2 : first;
  }
  range_costs ask(const cluster& c, const job_spec& job, const gpus_of_stage& t,
                  std::uint32_t first, std::uint32_t count, bool last) const;

  model_chain chain_;
  std::uint32_t tensor_, rows_, pipelines_, pieces_, size_;
  bool homogeneous_;
  std::uint32_t firsts_;
  std::vector<range_costs> middle_, last_;
  std::vector<double> work_from_;
  std::vector<cost_floor> middle_floors_, last_floors_;
  double min_activation_bytes_ = 0, max_activation_bytes_ = 0;
};

}  // namespace troupe::planners
