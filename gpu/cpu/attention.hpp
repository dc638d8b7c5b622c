#pragma once

#include <cstddef>

#include "gpu/cpu/pool.hpp"

namespace troupe::gpu::cpu {

/// Causal attention over `rows` sequences. Probabilities are not stored: forward keeps one number
/// per token and head from which backward recomputes them (FlashAttention), so that memory is
/// linear in the sequence length.
template <class T>
class attention {
 public:
  attention(std::size_t rows, std::size_t sequence, std::size_t hidden, std::size_t heads,
            pool& memory);

  std::size_t log_sums() const { return rows_ * heads_ * sequence_; }

  /// qkv: tokens x 3 hidden, queries, keys and values side by side; out: tokens x hidden.
  void forward(const T* qkv, T* out, T* log_sums);
  /// out: what forward made; gradient_qkv is set.
  void backward(const T* gradient_out, const T* qkv, const T* out, const T* log_sums,
                T* gradient_qkv);

 private:
  void backward_head(const T* gradient_out, const T* qkv, const T* out, const T* log_sums,
                     T* gradient_qkv);

  std::size_t rows_, sequence_, hidden_, heads_, width_, tile_;
  T scale_;
  buffer<T> scores_, gradients_, dots_;  // of a tile of queries
};

}  // namespace troupe::gpu::cpu
