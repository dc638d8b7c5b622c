#pragma once

#include <memory>

#include "gpu/cpu/attention.hpp"
#include "gpu/cpu/kernels/kernels.hpp"
#include "gpu/cpu/kernels/matrix.hpp"
#include "gpu/cpu/pool.hpp"
#include "gpu/model/parameters.hpp"
#include "gpu/tensor_parallel/thread_communicator.hpp"

namespace troupe::gpu::cpu {

/// A parameter's values: its weights, or its accumulated gradients.
template <class T>
struct weight_and_bias {
  T *weight = nullptr, *bias = nullptr;
};

/// Values of a sublayer: of attention c_attn and its c_proj, of the MLP c_fc and its c_proj, and
/// the norm before them.
template <class T>
struct sublayer_values {
  weight_and_bias<T> norm, wide, back;
};

/// Layer norm's two numbers per token, and its result.
template <class T>
struct normed {
  buffer<T> out, means, inverses;
};

/// A sublayer's forward results for its backward.
template <class T>
struct sublayer_memory {
  buffer<const T> in;
  normed<T> norm;
  buffer<T> qkv, log_sums, attended;  // attention's
  buffer<T> before, after;            // the MLP's, of gelu
};

/// Attention and MLP, each with the layer norm before it and the residual sum after it, and the
/// scratch memory shared by all sublayers of a stage.
template <class T>
class sublayer_maths {
 public:
  /// `tensor_group`: null: the stage is not shared. Throws std::runtime_error if it fails.
  sublayer_maths(const stage_spec& s, pool& memory,
                 std::shared_ptr<thread_communicator> tensor_group, const kernels<T>& set);

  /// m.in must be set; sets the rest. Returns the output.
  buffer<T> forward(sublayer what, const sublayer_values<T>& weights, sublayer_memory<T>& m);
  /// gradient: of the output, replaced by that of the input. Accumulates into `sums`.
  void backward(sublayer what, const sublayer_values<T>& weights, const sublayer_memory<T>& m,
                const sublayer_values<T>& sums, T* gradient);

  normed<T> norm(const weight_and_bias<T>& weights, const T* in);

 private:
  void linear_backward(const T* gradient_out, const T* in, std::size_t wide_in,
                       std::size_t wide_out, const T* weight, T* weight_sum, T* gradient_in);
  buffer<T> attention_forward(const sublayer_values<T>& weights, sublayer_memory<T>& m);
  buffer<T> mlp_forward(const sublayer_values<T>& weights, sublayer_memory<T>& m);
  void attention_backward(const sublayer_values<T>& weights, const sublayer_memory<T>& m,
                          const sublayer_values<T>& sums, T* gradient);
  void mlp_backward(const sublayer_values<T>& weights, const sublayer_memory<T>& m,
                    const sublayer_values<T>& sums, T* gradient);

  buffer<T> partial_sum(const T* in, const T* bias, matrix<const T> a, matrix<const T> b);
  void sum_over_tensor_group(T* values);

  pool& memory_;
  const kernels<T>& k_;
  std::shared_ptr<thread_communicator> tensor_group_;
  std::size_t tokens_, hidden_, own_hidden_, inner_;  // own_hidden_, inner_: this rank's slice
  attention<T> attention_;
  buffer<T> wide_, narrow_;
};

}  // namespace troupe::gpu::cpu
