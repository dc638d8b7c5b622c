#pragma once

#include <span>
#include <vector>

#include "gpu/cpu/sublayer.hpp"
#include "gpu/model/parameters.hpp"

namespace troupe::gpu::cpu {

/// What goes into a stage: tokens if it embeds, else an activation; targets if it predicts.
template <class T>
struct stage_input {
  buffer<const std::uint32_t> tokens, targets;
  buffer<const T> activation;
};

/// What a forward pass leaves for the backward pass.
template <class T>
struct stage_memory {
  std::vector<sublayer_memory<T>> sublayers;
  buffer<const T> last;  // the last one's output
  normed<T> final;
  buffer<T> logits;  // their gradient
};

/// A stage's weights, gradients and optimizer, and the passes over them, on the calling thread. In
/// double precision it is the tests' reference of what runs in single precision: same source.
template <class T>
class stage_maths {
 public:
  /// `s` was checked. Weights have their initial values. `fellows`: with whom it shares the stage;
  /// passes throw std::runtime_error if they cannot go on.
  explicit stage_maths(const stage_spec& s, std::shared_ptr<group> tensor_group = nullptr);

  struct result {
    buffer<T> activation;  // null if the stage predicts
    double loss = 0;
  };
  /// kept: null if a later call will make everything again.
  result forward(const stage_input<T>& in, stage_memory<T>* kept);
  /// gradient: of the activation; null if the stage predicts. That of the input; null if it embeds.
  buffer<T> backward(const stage_input<T>& in, const stage_memory<T>& kept, const T* gradient);

  /// The gradients' sums, own and then tied: the embedding's and, if the head is here too, the
  /// head's added to it.
  void copy_gradients(T* out) const;
  /// Sums from elsewhere instead of those made here.
  void replace_gradients(const T* own, const T* tied);
  void clear_gradients();
  /// One step with the gradients' sums, which it clears. The squared norm of scale x gradients; a
  /// tied embedding counts in the stage that embeds.
  double update(double scale);

  const std::vector<parameter>& parameters() const { return parameters_; }
  std::size_t own() const { return own_; }
  std::size_t tied() const { return tied_; }
  /// Own parameters, then the tied embedding.
  std::span<T> weights() { return {weights_.get(), own_ + tied_}; }
  std::span<T> first_moments() { return {first_moments_.get(), own_ + tied_}; }
  std::span<T> second_moments() { return {second_moments_.get(), own_ + tied_}; }
  /// Where a parameter's values begin in those.
  std::size_t position(const parameter& p) const { return p.tied ? own_ : p.offset; }

  std::uint64_t steps = 0;  // updates done
  pool& memory() { return memory_; }

 private:
  sublayer_values<T> values_of(T* values, std::uint32_t i) const;
  T* find(T* values, const std::string& name) const;
  weight_and_bias<T> both(T* values, const std::string& name) const;
  double predict(const stage_input<T>& in, buffer<const T> last, stage_memory<T>& m);
  buffer<T> predict_backward(const stage_memory<T>& m);
  /// Where the head's gradient goes.
  T* head_sums();

  stage_spec spec_;
  pool memory_;
  const kernels<T>& k_;
  std::vector<parameter> parameters_;
  std::size_t own_ = 0, tied_ = 0, tokens_, hidden_;
  sublayer_maths<T> sublayer_;
  buffer<T> weights_, gradients_, first_moments_, second_moments_;
  buffer<T> tied_head_;  // the head's sum, if the embedding is here too
};

}  // namespace troupe::gpu::cpu
