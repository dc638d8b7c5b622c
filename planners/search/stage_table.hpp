#pragma once

#include <cstdint>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/model/model_chain.hpp"

// What stages take on types of GPUs, range by range: the cost model and the memory model, asked
// once for each range, for searches over orders and cuts.

namespace troupe::planners {

/// Of one GPU of a stage.
struct range_costs {
  double forward_s = 0, recompute_s = 0, backward_s = 0;  // of a micro-batch
  double update_s = 0, gradients_s = 0;                   // of an iteration
  double gradient_bytes = 0;                              // that its peers sum with it
  double tied_bytes = 0;             // of which it sums with the other end of the pipeline
  double activation_bytes = 0;       // of a micro-batch, to the next stage
  double bytes = 0, bytes_each = 0;  // without micro-batches, and for each in flight

  double step_s() const { return forward_s + recompute_s + backward_s; }
};

/// What no stage of a type undercuts, for each of a sample's forward FLOPs in its range.
struct cost_floor {
  double forward_s = 0, recompute_s = 0, backward_s = 0;
};

/// For micro-batches of `rows` on stages of `tensor` GPUs each, in `pipelines` pipelines: several
/// sum their gradients.
class stage_table {
 public:
  /// `gpus`: the types of which stages can be, and over what the GPUs of such a stage sum.
  struct gpus_of_stage {
    gpu_index gpu = 0;
    link inside;
  };
  stage_table(const cluster& c, const job_spec& job, std::uint32_t tensor, std::uint32_t rows,
              const std::vector<gpus_of_stage>& types, std::uint32_t pipelines = 1);

  /// Stages can own so many pieces, and the last one those from `first` on: for first < size(). A
  /// transformer's last one may have its head alone, which is no piece.
  std::uint32_t pieces() const { return pieces_; }
  std::uint32_t size() const { return size_; }
  std::size_t types() const { return middle_floors_.size(); }
  /// Are all pieces of two kinds, by turns? Then larger ranges need more memory.
  bool homogeneous() const { return homogeneous_; }
  /// Of a stage with others behind it. Precondition: count > 0 and first + count < size().
  const range_costs& middle(std::size_t type, std::uint32_t first, std::uint32_t count) const {
    return middle_[(type * firsts_ + first_class(first)) * size_ + count];
  }
  /// Of the stage with everything from `first` on.
  const range_costs& last(std::size_t type, std::uint32_t first) const {
    return last_[type * size_ + first];
  }
  /// Forward FLOPs of a sample from the piece `first` on; from size() on: 0.
  double work_from(std::uint32_t first) const { return work_from_[first]; }

  const cost_floor& middle_floor(std::size_t type) const { return middle_floors_[type]; }
  const cost_floor& last_floor(std::size_t type) const { return last_floors_[type]; }
  /// The least that a stage hands to the next one.
  double min_activation_bytes() const { return min_activation_bytes_; }
  /// The most.
  double max_activation_bytes() const { return max_activation_bytes_; }

 private:
  /// Ranges of a transformer that begin with the same kind of piece cost the same.
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
