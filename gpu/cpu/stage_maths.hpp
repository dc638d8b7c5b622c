#pragma once

#include <span>
#include <vector>

#include "gpu/cpu/sublayer.hpp"
#include "gpu/model/parameters.hpp"

namespace troupe::gpu::cpu {

/// Inputs of a stage: tokens in the first, else an activation; targets in the last.
template <class T>
struct stage_input {
  buffer<const std::uint32_t> tokens, targets;
  buffer<const T> activation;
};

/// The forward pass's results for the backward pass.
template <class T>
struct stage_memory {
  std::vector<sublayer_memory<T>> sublayers;
  buffer<const T> last;  // the last one's output
  normed<T> final;
  buffer<T> logits;  // their gradient
};

/// A stage's weights, gradients and optimizer, and the passes over them, on the calling thread. The
/// double-precision instance is the tests' reference for single precision: same source.
template <class T>
class stage_maths {
 public:
  /// `s` must be valid. Weights have their initial values. `tensor_group`: null: the stage is not
  /// shared; passes throw std::runtime_error if it fails.
  explicit stage_maths(const stage_spec& s,
                       std::shared_ptr<thread_communicator> tensor_group = nullptr,
                       const kernels<T>& set = kernels_for<T>());

  struct result {
    buffer<T> activation;  // null in the last stage
    double loss = 0;
  };
  /// kept: null if a later call will recompute.
  result forward(const stage_input<T>& in, stage_memory<T>* kept);
  /// gradient: of the activation; null in the last stage. Returns that of the input; null in the
  /// first.
  buffer<T> backward(const stage_input<T>& in, const stage_memory<T>& kept, const T* gradient);

  /// The accumulated gradients, own and then tied: the embedding's and, if the head is here too,
  /// the head's added to it.
  void copy_gradients(T* out) const;
  /// Replaces them by sums from the host.
  void replace_gradients(const T* own, const T* tied);
  void clear_gradients();
  /// An update with the accumulated gradients, which are cleared. Returns the squared norm of scale
  /// x gradients; a tied embedding counts in the first stage.
  double update(double scale);

  const std::vector<parameter>& parameters() const { return parameters_; }
  std::size_t own() const { return own_; }
  std::size_t tied() const { return tied_; }
  /// Own parameters, then the tied embedding.
  std::span<T> weights() { return {weights_.get(), own_ + tied_}; }
  std::span<T> first_moments() { return {first_moments_.get(), own_ + tied_}; }
  std::span<T> second_moments() { return {second_moments_.get(), own_ + tied_}; }
  /// Offset of a parameter's values in these.
  std::size_t position(const parameter& p) const { return p.tied ? own_ : p.offset; }

  std::uint64_t steps = 0;  // number of updates
  pool& memory() { return memory_; }

 private:
  sublayer_values<T> values_of(T* values, std::uint32_t i) const;
  T* find(T* values, const std::string& name) const;
  weight_and_bias<T> both(T* values, const std::string& name) const;
  double predict(const stage_input<T>& in, buffer<const T> last, stage_memory<T>& m);
  buffer<T> predict_backward(const stage_memory<T>& m);
  /// The buffer of the head's gradient.
  T* head_sums();

  stage_spec spec_;
  pool memory_;
  const kernels<T>& k_;
  std::vector<parameter> parameters_;
  std::size_t own_ = 0, tied_ = 0, tokens_, hidden_;
  sublayer_maths<T> sublayer_;
  buffer<T> weights_, gradients_, first_moments_, second_moments_;
  buffer<T> tied_head_;  // the head's gradient, if the embedding is here too
};

}  // namespace troupe::gpu::cpu
