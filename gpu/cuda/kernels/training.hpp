#pragma once

#include "gpu/cuda/kernels/portable.hpp"

// Loss and optimizer.

namespace troupe::gpu::cuda {

/// Sums and maxima over a block of `warps` warps.
template <int warps>
struct block_of {
  TROUPE_DEVICE static float largest(float v) {
    auto* shared = reinterpret_cast<float*>(shared_memory());
    v = warp_largest(v);
    if (thread_id() % lanes == 0) shared[thread_id() / lanes] = v;
    sync_threads();
    for (int w = 0; w < warps; ++w) v = larger(v, shared[w]);
    sync_threads();
    return v;
  }
  template <class T>
  TROUPE_DEVICE static T sum(T v) {
    auto* shared = reinterpret_cast<T*>(shared_memory());
    v = warp_sum(v);
    if (thread_id() % lanes == 0) shared[thread_id() / lanes] = v;
    sync_threads();
    v = 0;
    for (int w = 0; w < warps; ++w) v += shared[w];
    sync_threads();
    return v;
  }
};

/// A block per row: -log softmax(logits)[target]; logits are replaced by scale x their gradient. A
/// row has `width` values, of which the first n are words; the padding becomes 0.
struct cross_entropy_kernel {
  static constexpr int threads = 256, shared_bytes = 256;
  using block = block_of<threads / lanes>;
  bf16* logits;
  const std::uint32_t* targets;
  std::size_t n, width;
  float scale;
  float* losses;

  TROUPE_DEVICE void operator()() const {
    const auto r = static_cast<std::size_t>(block_id());
    bf16* row = logits + r * width;
    const auto first = static_cast<std::size_t>(thread_id()) * 4;
    constexpr float min = -3e38f;
    float max = min, sum = 0;  // online: sum of exponentials relative to the maximum so far
    for (auto c = first; c < n; c += threads * 4) {
      auto v = load_four(row + c);
      TROUPE_UNROLL
      for (int j = 0; j < 4; ++j)
        if (c + static_cast<std::size_t>(j) >= n) v.at[j] = min;
      const float next = larger(max, larger(larger(v.at[0], v.at[1]), larger(v.at[2], v.at[3])));
      sum *= exponential2((max - next) * log2_e);
      TROUPE_UNROLL
      for (int j = 0; j < 4; ++j) sum += exponential2((v.at[j] - next) * log2_e);
      max = next;
    }
    const float top = block::largest(max);
    sum = block::sum(sum * exponential2((max - top) * log2_e));
    const auto target = targets[r];
    const float wanted = to_float(row[target]);
    sync_threads();  // all threads have read it
    const float factor = scale / sum;
    for (auto c = first; c < width; c += threads * 4) {
      auto v = load_four(row + c);
      TROUPE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const auto at = c + static_cast<std::size_t>(j);
        v.at[j] = at < n ? exponential2((v.at[j] - top) * log2_e) * factor : 0.0f;
        if (at == target) v.at[j] -= scale;
      }
      store_four(row + c, v);
    }
    if (thread_id() == 0) losses[r] = logarithm2(sum) / log2_e - (wanted - top);
  }
};

/// One block: the sum of n values times a factor, in double precision.
template <class T>
struct total_kernel {
  static constexpr int threads = 256, shared_bytes = 256;
  const T* values;
  std::size_t n;
  double factor;
  double* out;

  TROUPE_DEVICE void operator()() const {
    double sum = 0;
    for (auto i = static_cast<std::size_t>(thread_id()); i < n; i += threads)
      sum += static_cast<double>(values[i]);
    sum = block_of<threads / lanes>::sum(sum);
    if (thread_id() == 0) *out = sum * factor;
  }
};

/// A run of a parameter's values that a block of AdamW updates.
struct adamw_run {
  std::uint64_t at, narrow_at;          // offsets in the masters and in the 16-bit copies
  std::uint32_t count, decays, counts;  // ... in the norm
  std::uint32_t unused = 0;
};

/// Length of a parameter's runs; the last one may be shorter.
constexpr std::size_t values_a_run = 8192;

struct adamw_numbers {
  float scale, beta1, beta2, keep1, keep2, epsilon, rate, correct, shrink;
};

/// A block per run, with the bits of the CPU's AdamW: updates the masters and their 16-bit copies,
/// computes the squared norm of scale x gradients, and clears the gradients.
struct adamw_kernel {
  static constexpr int threads = 256, shared_bytes = 256;
  const adamw_run* runs;
  float *values, *first_moments, *second_moments, *gradients;
  bf16* narrow;
  double* norms;
  adamw_numbers how;

  TROUPE_DEVICE void operator()() const {
    const auto run = runs[block_id()];
    double squares = 0;
    for (auto i = static_cast<std::size_t>(thread_id()); i < run.count; i += threads) {
      const auto at = run.at + i;
      const float g = gradients[at] * how.scale;
      const float m =
          rounded_sum(rounded_product(how.beta1, first_moments[at]), rounded_product(how.keep1, g));
      const float v = rounded_sum(rounded_product(how.beta2, second_moments[at]),
                                  rounded_product(rounded_product(how.keep2, g), g));
      const float root_of_v = rounded_root(rounded_product(v, how.correct));
      const float step =
          rounded_quotient(rounded_product(how.rate, m), rounded_sum(root_of_v, how.epsilon));
      const float kept = rounded_product(values[at], run.decays ? how.shrink : 1.0f);
      const float value = rounded_sum(kept, -step);
      first_moments[at] = m;
      second_moments[at] = v;
      gradients[at] = 0;
      values[at] = value;
      narrow[run.narrow_at + i] = to_bf16(value);
      squares += static_cast<double>(g) * static_cast<double>(g);
    }
    squares = block_of<threads / lanes>::sum(squares);
    if (thread_id() == 0) norms[block_id()] = run.counts ? squares : 0.0;
  }
};

/// The 16-bit copies of masters that were set.
struct narrow_weights_kernel {
  static constexpr int threads = 256;
  const adamw_run* runs;
  const float* values;
  bf16* narrow;

  TROUPE_DEVICE void operator()() const {
    const auto run = runs[block_id()];
    for (auto i = static_cast<std::size_t>(thread_id()); i < run.count; i += threads)
      narrow[run.narrow_at + i] = to_bf16(values[run.at + i]);
  }
};

}  // namespace troupe::gpu::cuda
