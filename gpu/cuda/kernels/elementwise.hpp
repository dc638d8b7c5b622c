#pragma once

#include "gpu/cuda/kernels/portable.hpp"

// Kernels that treat each value, or each row, independently. A kernel is its arguments and a
// function that each thread calls. `n`: values per row, a multiple of 8.

namespace troupe::gpu::cuda {

/// The work of a thread in elementwise kernels: four values.
struct each_four {
  static constexpr int threads = 256;
  std::size_t count = 0;  // in groups of four

  TROUPE_DEVICE std::size_t index() const {
    return static_cast<std::size_t>(block_id()) * threads + static_cast<std::size_t>(thread_id());
  }
};

/// out = token embedding + position embedding.
struct embed_kernel : each_four {
  const std::uint32_t* tokens;
  std::size_t sequence, n;
  const float *words, *positions;
  float* out;

  TROUPE_DEVICE void operator()() const {
    const auto i = index();
    if (i >= count) return;
    const auto token = i / (n / 4), column = i % (n / 4) * 4;
    const auto w = load_four(words + tokens[token] * n + column);
    const auto p = load_four(positions + token % sequence * n + column);
    store_four(out + token * n + column,
               {{w.at[0] + p.at[0], w.at[1] + p.at[1], w.at[2] + p.at[2], w.at[3] + p.at[3]}});
  }
};

/// Gradients of the position embeddings: the sum over rows, in their order.
struct embed_positions_backward_kernel : each_four {
  std::size_t rows, sequence, n;
  const float* gradient;
  float* positions;

  TROUPE_DEVICE void operator()() const {
    const auto i = index();
    if (i >= count) return;
    auto sum = load_four(positions + 4 * i);
    for (std::size_t r = 0; r < rows; ++r) {
      const auto g = load_four(gradient + r * sequence * n + 4 * i);
      TROUPE_UNROLL
      for (int j = 0; j < 4; ++j) sum.at[j] += g.at[j];
    }
    store_four(positions + 4 * i, sum);
  }
};

/// Gradients of the token embeddings: a block per occurring word, summing its positions in order.
struct embed_words_backward_kernel {
  static constexpr int threads = 128;
  const std::uint32_t* words_that_occur;
  const std::uint32_t* begins;  // of each word in `places`; one more at the end
  const std::uint32_t* places;  // token positions, by word
  std::size_t n;
  const float* gradient;
  float* words;

  TROUPE_DEVICE void operator()() const {
    const auto which = block_id();
    const auto first = begins[which], last = begins[which + 1];
    float* to = words + words_that_occur[which] * n;
    for (auto c = static_cast<std::size_t>(thread_id()) * 4; c < n; c += threads * 4) {
      auto sum = load_four(to + c);
      for (auto i = first; i < last; ++i) {
        const auto g = load_four(gradient + places[i] * n + c);
        TROUPE_UNROLL
        for (int j = 0; j < 4; ++j) sum.at[j] += g.at[j];
      }
      store_four(to + c, sum);
    }
  }
};

/// to += bias, by row. T: type of the values and the bias.
template <class T>
struct add_bias_kernel : each_four {
  T* to;
  const T* bias;
  std::size_t n;

  TROUPE_DEVICE void operator()() const {
    const auto i = index();
    if (i >= count) return;
    auto v = load_four(to + 4 * i);
    const auto b = load_four(bias + 4 * i % n);
    TROUPE_UNROLL
    for (int j = 0; j < 4; ++j) v.at[j] += b.at[j];
    store_four(to + 4 * i, v);
  }
};

/// before += bias; after = gelu(before).
struct bias_gelu_kernel : each_four {
  bf16* before;
  const bf16* bias;
  std::size_t n;
  bf16* after;

  TROUPE_DEVICE void operator()() const {
    const auto i = index();
    if (i >= count) return;
    auto v = load_four(before + 4 * i);
    const auto b = load_four(bias + 4 * i % n);
    four<float> a;
    TROUPE_UNROLL
    for (int j = 0; j < 4; ++j) {
      v.at[j] += b.at[j];
      a.at[j] = v.at[j] * gelu_cdf(v.at[j]);
    }
    store_four(before + 4 * i, v);
    store_four(after + 4 * i, a);
  }
};

/// gradient *= gelu'(before).
struct gelu_backward_kernel : each_four {
  bf16* gradient;
  const bf16* before;

  TROUPE_DEVICE void operator()() const {
    const auto i = index();
    if (i >= count) return;
    auto g = load_four(gradient + 4 * i);
    const auto x = load_four(before + 4 * i);
    TROUPE_UNROLL
    for (int j = 0; j < 4; ++j) g.at[j] *= gelu_slope(x.at[j]);
    store_four(gradient + 4 * i, g);
  }
};

/// out = in, rounded.
struct narrow_kernel : each_four {
  const float* in;
  bf16* out;

  TROUPE_DEVICE void operator()() const {
    const auto i = index();
    if (i < count) store_four(out + 4 * i, load_four(in + 4 * i));
  }
};

/// to += what, for any number of values.
struct add_kernel : each_four {
  float* to;
  const float* what;
  std::size_t values;

  TROUPE_DEVICE void operator()() const {
    const auto first = 4 * index();
    for (auto i = first; i < first + 4 && i < values; ++i) to[i] += what[i];
  }
};

}  // namespace troupe::gpu::cuda
