#pragma once

#include "gpu/cpu/attention.hpp"
#include "gpu/cpu/kernels.hpp"
#include "gpu/cpu/matrix.hpp"
#include "gpu/cpu/pool.hpp"

namespace troupe::gpu::cpu {

/// Where a layer's values lie: its weights, or the sums of their gradients.
template <class T>
struct weight_and_bias {
  T *weight = nullptr, *bias = nullptr;
};

template <class T>
struct block_values {
  weight_and_bias<T> ln_1, c_attn, c_proj, ln_2, c_fc, mlp_proj;
};

/// Layer norm's two numbers a token, and its result.
template <class T>
struct normed {
  buffer<T> out, means, inverses;
};

/// What a block's forward leaves for its backward.
template <class T>
struct block_memory {
  buffer<const T> in;
  normed<T> first;
  buffer<T> qkv, log_sums, attended, middle;
  normed<T> second;
  buffer<T> before, after;  // of gelu
};

/// A block's arithmetic, and the scratch memory that all blocks of a stage use in turn.
template <class T>
class block_maths {
 public:
  block_maths(std::size_t rows, std::size_t sequence, std::size_t hidden, std::size_t heads,
              std::size_t inner, pool& memory);

  /// m.in is there; the rest is set. The block's output.
  buffer<T> forward(const block_values<T>& weights, block_memory<T>& m);
  /// gradient: of the output; becomes that of the input. `sums` grow.
  void backward(const block_values<T>& weights, const block_memory<T>& m,
                const block_values<T>& sums, T* gradient);

  normed<T> norm(const weight_and_bias<T>& weights, const T* in);

 private:
  void linear_backward(const T* gradient_out, const T* in, std::size_t wide_in,
                       std::size_t wide_out, const T* weight, T* weight_sum, T* gradient_in);
  void attention_backward(const block_values<T>& weights, const block_memory<T>& m,
                          const block_values<T>& sums, T* gradient);
  void mlp_backward(const block_values<T>& weights, const block_memory<T>& m,
                    const block_values<T>& sums, T* gradient);

  pool& memory_;
  const kernels<T>& k_;
  std::size_t tokens_, hidden_, inner_;
  attention<T> attention_;
  buffer<T> wide_, narrow_;
};

}  // namespace troupe::gpu::cpu
