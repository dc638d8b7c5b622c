#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::gpu::cpu {

/// Rows of kernels::add_product at most.
inline constexpr std::size_t few_rows = 8;

/// AdamW's parameters.
struct adamw_step {
  double scale = 1;  // of the gradients
  double learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, decay = 0;
  double correction1 = 1, correction2 = 1;  // 1 - beta^steps
};

/// One update; returns the squared norm of the scaled gradients. The same bits on every processor.
template <class T>
using adamw_function = double(T* values, T* first_moments, T* second_moments, const T* gradients,
                              std::size_t n, const adamw_step& how);

/// Everything except matrix products, for one value type. Rows are contiguous, n values each,
/// unless a stride is given. Vectorized by the compiler for several instruction sets; the order of
/// every sum depends only on the shape, provided that rows are aligned to 64 bytes consistently.
template <class T>
struct kernels {
  const char* name;  // of the instruction set

  /// out = token embedding + position embedding; and the sums of their gradients.
  void (*embed)(const std::uint32_t* tokens, std::size_t rows, std::size_t sequence, std::size_t n,
                const T* words, const T* positions, T* out);
  void (*embed_backward)(const std::uint32_t* tokens, std::size_t rows, std::size_t sequence,
                         std::size_t n, const T* gradient, T* words, T* positions);

  /// out = in + bias; in may be null: 0.
  void (*add_bias)(const T* in, const T* bias, std::size_t rows, std::size_t n, T* out);
  /// sums += the sum of all rows.
  void (*sum_rows)(const T* in, std::size_t rows, std::size_t n, T* sums);

  /// out = (in - mean) / deviation * weight + bias, by row; keeps mean and 1 / deviation.
  void (*layer_norm)(const T* in, const T* weight, const T* bias, std::size_t rows, std::size_t n,
                     T* out, T* means, T* inverses);
  /// gradient_in += ...; weight and bias: sums of gradients.
  void (*layer_norm_backward)(const T* gradient_out, const T* in, const T* weight, const T* means,
                              const T* inverses, std::size_t rows, std::size_t n, T* gradient_in,
                              T* weight_sum, T* bias_sum);

  /// before += bias; after = gelu(before), in its form with tanh.
  void (*bias_gelu)(T* before, const T* bias, std::size_t rows, std::size_t n, T* after);
  /// gradient *= gelu'(before); bias_sum += the sum of its rows.
  void (*gelu_backward)(T* gradient, const T* before, std::size_t rows, std::size_t n, T* bias_sum);

  /// Softmax of scale x scores[i][0 .. first + i], and 0 for later keys, up to n; keeps the
  /// logarithm of each row's sum of exponentials.
  void (*causal_softmax)(T* scores, std::size_t rows, std::size_t n, std::size_t first, T scale,
                         T* log_sums);
  /// scores: recomputes those probabilities from the logarithms. gradient: from that of the
  /// probabilities to that of the scores before scaling; dots: sums of gradient x probability.
  void (*causal_softmax_backward)(T* scores, T* gradient, std::size_t rows, std::size_t n,
                                  std::size_t first, T scale, const T* log_sums, const T* dots);
  /// out[i] = dot product of the rows i.
  void (*row_dots)(const T* a, const T* b, std::size_t rows, std::size_t n, std::size_t stride,
                   T* out);

  /// The sum over rows of -log softmax(logits)[target]; logits become scale x their gradient.
  double (*cross_entropy)(T* logits, const std::uint32_t* targets, std::size_t rows, std::size_t n,
                          T scale);

  // For inference.

  /// out += in * weight [inner, columns], for 1 to few_rows rows; `in` and `out` have the memory of
  /// few_rows, and the rows of weight and out are `stride` values apart. Each value is a sum in the
  /// order of `inner`, so its bits depend on neither the number of rows nor the other rows, nor on
  /// the other columns if these begin at a multiple of 16. Reads the weights once, or nearly: a
  /// decode is bound by that.
  void (*add_product)(const T* in, std::size_t rows, const T* weight, std::size_t inner,
                      std::size_t stride, std::size_t columns, T* out);

  /// out = in / root mean square * weight, by row.
  void (*rms_norm)(const T* in, const T* weight, std::size_t rows, std::size_t n, T epsilon,
                   T* out);
  /// Rotates the pairs (j, j + width / 2) of each head by angles given as width / 2 cosines and
  /// sines.
  void (*rotate)(T* values, std::size_t heads, std::size_t width, const T* cosines, const T* sines);
  /// out[j] = silu(in[j]) * in[n + j]; rows of 2 n values become rows of n.
  void (*silu_gate)(const T* in, std::size_t rows, std::size_t n, T* out);
  /// out[i] = dot product of `one` and row i.
  void (*dots)(const T* one, const T* rows, std::size_t count, std::size_t n, T* out);
  /// out += the sum of weights[i] * row i, in order.
  void (*add_weighted_rows)(const T* weights, const T* rows, std::size_t count, std::size_t n,
                            T* out);

  void (*add)(T* to, const T* what, std::size_t n);
  adamw_function<T>* adamw;
};

}  // namespace troupe::gpu::cpu
