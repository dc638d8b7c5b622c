#pragma once

#include "gpu/cuda/kernels/portable.hpp"

// Layer norm, and sums over rows in an order that depends only on the shape.

namespace troupe::gpu::cuda {

/// One warp per row.
struct each_row {
  static constexpr int threads = 256, rows_a_block = threads / lanes;
  std::size_t rows = 0, n = 0;

  TROUPE_DEVICE std::size_t row() const {
    return static_cast<std::size_t>(block_id()) * rows_a_block +
           static_cast<std::size_t>(thread_id() / lanes);
  }
  TROUPE_DEVICE std::size_t first_column() const {
    return static_cast<std::size_t>(thread_id() % lanes) * 4;
  }
};

/// out = (in - mean) / deviation * weight + bias; keeps mean and 1 / deviation.
struct layer_norm_kernel : each_row {
  const float *in, *weight, *bias;
  bf16* out;
  float *means, *inverses;

  TROUPE_DEVICE void operator()() const {
    const auto r = row();
    if (r >= rows) return;
    const float* x = in + r * n;
    float sum = 0;
    for (auto c = first_column(); c < n; c += 4 * lanes) {
      const auto v = load_four(x + c);
      sum += (v.at[0] + v.at[1]) + (v.at[2] + v.at[3]);
    }
    const float mean = warp_sum(sum) / static_cast<float>(n);
    float squares = 0;
    for (auto c = first_column(); c < n; c += 4 * lanes) {
      const auto v = load_four(x + c);
      TROUPE_UNROLL
      for (int j = 0; j < 4; ++j) squares += (v.at[j] - mean) * (v.at[j] - mean);
    }
    const float inverse = reciprocal_root(warp_sum(squares) / static_cast<float>(n) + 1e-5f);
    for (auto c = first_column(); c < n; c += 4 * lanes) {
      auto v = load_four(x + c);
      const auto w = load_four(weight + c), b = load_four(bias + c);
      TROUPE_UNROLL
      for (int j = 0; j < 4; ++j) v.at[j] = (v.at[j] - mean) * inverse * w.at[j] + b.at[j];
      store_four(out + r * n + c, v);
    }
    if (thread_id() % lanes == 0) {
      means[r] = mean;
      inverses[r] = inverse;
    }
  }
};

/// gradient (of the input, in both precisions) = ..., or += ... if it accumulates.
struct layer_norm_backward_kernel : each_row {
  const bf16* gradient_out;
  const float *in, *weight, *means, *inverses;
  float* gradient;
  bf16* narrow;
  bool adds;

  TROUPE_DEVICE void operator()() const {
    const auto r = row();
    if (r >= rows) return;
    const auto at = r * n;
    const float mean = means[r], inverse = inverses[r];
    float sum = 0, dot = 0;
    for (auto c = first_column(); c < n; c += 4 * lanes) {
      const auto g = load_four(gradient_out + at + c), x = load_four(in + at + c),
                 w = load_four(weight + c);
      TROUPE_UNROLL
      for (int j = 0; j < 4; ++j) {
        sum += g.at[j] * w.at[j];
        dot += g.at[j] * w.at[j] * ((x.at[j] - mean) * inverse);
      }
    }
    sum = warp_sum(sum) / static_cast<float>(n);
    dot = warp_sum(dot) / static_cast<float>(n);
    for (auto c = first_column(); c < n; c += 4 * lanes) {
      const auto g = load_four(gradient_out + at + c), x = load_four(in + at + c),
                 w = load_four(weight + c);
      four<float> to = {{0, 0, 0, 0}};
      if (adds) to = load_four(gradient + at + c);
      TROUPE_UNROLL
      for (int j = 0; j < 4; ++j)
        to.at[j] += inverse * (g.at[j] * w.at[j] - sum - (x.at[j] - mean) * inverse * dot);
      store_four(gradient + at + c, to);
      store_four(narrow + at + c, to);
    }
  }
};

/// Sums over rows take two steps: a block sums `rows_a_part` rows of `columns` columns, then one
/// thread per column adds the partial sums in order.
struct each_part {
  static constexpr int threads = 256, groups = threads / lanes, columns = 4 * lanes;
  static constexpr int shared_bytes = groups * columns * static_cast<int>(sizeof(float));
  std::size_t rows = 0, n = 0, rows_a_part = 0;
  float* parts = nullptr;  // one row of n per partial sum

  TROUPE_DEVICE std::size_t column() const {
    return static_cast<std::size_t>(block_id()) * columns +
           static_cast<std::size_t>(thread_id() % lanes) * 4;
  }
  TROUPE_DEVICE std::size_t part() const { return static_cast<std::size_t>(block_id_y()); }
  TROUPE_DEVICE std::size_t end() const {
    const auto e = (part() + 1) * rows_a_part;
    return e < rows ? e : rows;
  }
  /// Adds the partial sums of a block's groups in order.
  TROUPE_DEVICE void finish(const four<float>& sum, float* to) const {
    auto* shared = reinterpret_cast<float*>(shared_memory());
    const int group = thread_id() / lanes, lane = thread_id() % lanes;
    store_four(shared + group * columns + lane * 4, sum);
    sync_threads();
    if (group == 0 && column() < n) {
      auto all = sum;
      for (int other = 1; other < groups; ++other) {
        const auto more = load_four(shared + other * columns + lane * 4);
        TROUPE_UNROLL
        for (int j = 0; j < 4; ++j) all.at[j] += more.at[j];
      }
      store_four(to + part() * n + column(), all);
    }
    sync_threads();
  }
};

template <class T>
struct sum_rows_kernel : each_part {
  const T* in;

  TROUPE_DEVICE void operator()() const {
    four<float> sum = {{0, 0, 0, 0}};
    if (column() < n)
      for (auto r = part() * rows_a_part + static_cast<std::size_t>(thread_id() / lanes); r < end();
           r += groups) {
        const auto v = load_four(in + r * n + column());
        TROUPE_UNROLL
        for (int j = 0; j < 4; ++j) sum.at[j] += v.at[j];
      }
    finish(sum, parts);
  }
};

/// Layer norm's gradients of weight and bias.
struct norm_weights_kernel : each_part {
  const bf16* gradient_out;
  const float *in, *means, *inverses;
  float* bias_parts;

  TROUPE_DEVICE void operator()() const {
    four<float> weight = {{0, 0, 0, 0}}, bias = weight;
    if (column() < n)
      for (auto r = part() * rows_a_part + static_cast<std::size_t>(thread_id() / lanes); r < end();
           r += groups) {
        const auto g = load_four(gradient_out + r * n + column()),
                   x = load_four(in + r * n + column());
        TROUPE_UNROLL
        for (int j = 0; j < 4; ++j) {
          weight.at[j] += g.at[j] * ((x.at[j] - means[r]) * inverses[r]);
          bias.at[j] += g.at[j];
        }
      }
    finish(weight, parts);
    finish(bias, bias_parts);
  }
};

/// sums += all parts.
struct add_parts_kernel {
  static constexpr int threads = 128;
  const float* parts;
  std::size_t count, n;
  float* sums;

  TROUPE_DEVICE void operator()() const {
    const auto c =
        static_cast<std::size_t>(block_id()) * threads + static_cast<std::size_t>(thread_id());
    if (c >= n) return;
    float sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += parts[i * n + c];
    sums[c] += sum;
  }
};

}  // namespace troupe::gpu::cuda
