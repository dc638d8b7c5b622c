#pragma once

#include <cstddef>
#include <vector>

#include "gpu/inference/inference_model.hpp"

namespace troupe::gpu::cpu {

/// The angles of rotary position embeddings, as Hugging Face computes them: frequencies and angles
/// in 32-bit floats. Kept for all positions up to the last one asked for.
class rotary {
 public:
  explicit rotary(const inference_model& m);

  /// Makes the angles of the positions below this available.
  void reach(std::uint32_t positions);
  /// head_width / 2 values of a position below that.
  const float* cosines(std::uint32_t position) const { return &cosines_[position * half()]; }
  const float* sines(std::uint32_t position) const { return &sines_[position * half()]; }

 private:
  std::size_t half() const { return frequencies_.size(); }

  std::vector<float> frequencies_, cosines_, sines_;
  double scale_ = 1;  // of cosines and sines
};

}  // namespace troupe::gpu::cpu
