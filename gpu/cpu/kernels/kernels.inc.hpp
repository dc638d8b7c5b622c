#pragma once

// The kernels' source, compiled once for each instruction set: kernels_*.cpp define TROUPE_KERNELS.
// It must not call inline functions of libraries: the linker keeps one of their copies, which may
// use instructions that the processor lacks.

#include "gpu/cpu/kernels/kernels.hpp"

namespace troupe::gpu::cpu {

namespace {

#define TROUPE_INLINE inline __attribute__((always_inline))
#define TROUPE_SIMD _Pragma("omp simd")

using std::size_t;
using std::uint32_t;

/// e^x with a relative error below 2e-7 between -87 and 88; beyond, 0 or the values at the ends.
TROUPE_INLINE float exponential(float x) {
  const float magic = 12582912.0f;  // 1.5 x 2^23: adding it rounds to an integer
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float shifted = x * 1.44269504f + magic;
  const float n = shifted - magic;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int power = (__builtin_bit_cast(int, shifted) - __builtin_bit_cast(int, magic) + 127) << 23;
  return p * __builtin_bit_cast(float, power);
}
TROUPE_INLINE double exponential(double x) {
  return __builtin_exp(x);
}
TROUPE_INLINE float logarithm(float x) {
  return __builtin_logf(x);
}
TROUPE_INLINE double logarithm(double x) {
  return __builtin_log(x);
}
TROUPE_INLINE float root(float x) {
  return __builtin_sqrtf(x);
}
TROUPE_INLINE double root(double x) {
  return __builtin_sqrt(x);
}

template <class T>
void embed(const uint32_t* tokens, size_t rows, size_t sequence, size_t n, const T* words,
           const T* positions, T* __restrict out) {
  for (size_t i = 0; i < rows * sequence; ++i) {
    const T* word = words + tokens[i] * n;
    const T* position = positions + i % sequence * n;
    TROUPE_SIMD for (size_t j = 0; j < n; ++j) out[i * n + j] = word[j] + position[j];
  }
}

template <class T>
void embed_backward(const uint32_t* tokens, size_t rows, size_t sequence, size_t n,
                    const T* __restrict gradient, T* __restrict words, T* __restrict positions) {
  for (size_t i = 0; i < rows * sequence; ++i) {
    T* word = words + tokens[i] * n;
    T* position = positions + i % sequence * n;
    TROUPE_SIMD for (size_t j = 0; j < n; ++j) {
      word[j] += gradient[i * n + j];
      position[j] += gradient[i * n + j];
    }
  }
}

template <class T>
void add_bias(const T* in, const T* bias, size_t rows, size_t n, T* __restrict out) {
  for (size_t i = 0; i < rows; ++i, out += n) {
    if (in == nullptr) {
      TROUPE_SIMD for (size_t j = 0; j < n; ++j) out[j] = bias[j];
    } else {
      TROUPE_SIMD for (size_t j = 0; j < n; ++j) out[j] = in[j] + bias[j];
      in += n;
    }
  }
}

template <class T>
void sum_rows(const T* in, size_t rows, size_t n, T* __restrict sums) {
  for (size_t i = 0; i < rows; ++i, in += n) {
    TROUPE_SIMD for (size_t j = 0; j < n; ++j) sums[j] += in[j];
  }
}

template <class T>
void layer_norm(const T* in, const T* weight, const T* bias, size_t rows, size_t n,
                T* __restrict out, T* __restrict means, T* __restrict inverses) {
  for (size_t i = 0; i < rows; ++i, in += n, out += n) {
    T sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t j = 0; j < n; ++j) sum += in[j];
    const T mean = sum / static_cast<T>(n);
#pragma omp simd reduction(+ : squares)
    for (size_t j = 0; j < n; ++j) squares += (in[j] - mean) * (in[j] - mean);
    const T inverse = T{1} / root(squares / static_cast<T>(n) + static_cast<T>(1e-5));
    TROUPE_SIMD for (size_t j = 0; j < n; ++j) out[j] =
        (in[j] - mean) * inverse * weight[j] + bias[j];
    means[i] = mean;
    inverses[i] = inverse;
  }
}

template <class T>
void layer_norm_backward(const T* gradient_out, const T* in, const T* weight, const T* means,
                         const T* inverses, size_t rows, size_t n, T* __restrict gradient_in,
                         T* __restrict weight_sum, T* __restrict bias_sum) {
  for (size_t i = 0; i < rows; ++i, in += n, gradient_out += n, gradient_in += n) {
    const T mean = means[i], inverse = inverses[i];
    T sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
    for (size_t j = 0; j < n; ++j) {
      const T g = gradient_out[j], normal = (in[j] - mean) * inverse;
      sum += g * weight[j];
      dot += g * weight[j] * normal;
      weight_sum[j] += g * normal;
      bias_sum[j] += g;
    }
    sum /= static_cast<T>(n);
    dot /= static_cast<T>(n);
    TROUPE_SIMD for (size_t j = 0; j < n; ++j) gradient_in[j] +=
        inverse * (gradient_out[j] * weight[j] - sum - (in[j] - mean) * inverse * dot);
  }
}

// gelu(x) = x / 2 (1 + tanh(u)) = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
constexpr double gelu_factor = 2 * 0.79788456080286535588, gelu_cube = 0.044715;

template <class T>
TROUPE_INLINE T gelu_cdf(T x) {  // of x that remains
  const T twice = static_cast<T>(gelu_factor) * x * (T{1} + static_cast<T>(gelu_cube) * x * x);
  return T{1} / (T{1} + exponential(-twice));
}

template <class T>
void bias_gelu(T* __restrict before, const T* bias, size_t rows, size_t n, T* __restrict after) {
  for (size_t i = 0; i < rows; ++i, before += n, after += n) {
    TROUPE_SIMD for (size_t j = 0; j < n; ++j) {
      const T x = before[j] + bias[j];
      before[j] = x;
      after[j] = x * gelu_cdf(x);
    }
  }
}

template <class T>
void gelu_backward(T* __restrict gradient, const T* before, size_t rows, size_t n,
                   T* __restrict bias_sum) {
  for (size_t i = 0; i < rows; ++i, gradient += n, before += n) {
    TROUPE_SIMD for (size_t j = 0; j < n; ++j) {
      const T x = before[j], cdf = gelu_cdf(x);
      const T slope = static_cast<T>(gelu_factor) * (T{1} + static_cast<T>(3 * gelu_cube) * x * x);
      const T g = gradient[j] * (cdf + x * cdf * (T{1} - cdf) * slope);
      gradient[j] = g;
      bias_sum[j] += g;
    }
  }
}

template <class T>
void causal_softmax(T* scores, size_t rows, size_t n, size_t first, T scale,
                    T* __restrict log_sums) {
  for (size_t i = 0; i < rows; ++i, scores += n) {
    const size_t seen = first + i + 1;
    T max = scores[0], sum = 0;
#pragma omp simd reduction(max : max)
    for (size_t j = 0; j < seen; ++j) max = scores[j] > max ? scores[j] : max;
#pragma omp simd reduction(+ : sum)
    for (size_t j = 0; j < seen; ++j) {
      const T e = exponential(scale * (scores[j] - max));
      scores[j] = e;
      sum += e;
    }
    const T inverse = T{1} / sum;
    TROUPE_SIMD for (size_t j = 0; j < seen; ++j) scores[j] *= inverse;
    for (size_t j = seen; j < n; ++j) scores[j] = 0;
    log_sums[i] = scale * max + logarithm(sum);
  }
}

template <class T>
void causal_softmax_backward(T* __restrict scores, T* __restrict gradient, size_t rows, size_t n,
                             size_t first, T scale, const T* log_sums, const T* dots) {
  for (size_t i = 0; i < rows; ++i, scores += n, gradient += n) {
    const size_t seen = first + i + 1;
    const T log_sum = log_sums[i], dot = dots[i];
    TROUPE_SIMD for (size_t j = 0; j < seen; ++j) {
      const T p = exponential(scale * scores[j] - log_sum);
      scores[j] = p;
      gradient[j] = p * (gradient[j] - dot) * scale;
    }
    for (size_t j = seen; j < n; ++j) scores[j] = gradient[j] = 0;
  }
}

template <class T>
void row_dots(const T* a, const T* b, size_t rows, size_t n, size_t stride, T* __restrict out) {
  for (size_t i = 0; i < rows; ++i, a += stride, b += stride) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t j = 0; j < n; ++j) sum += a[j] * b[j];
    out[i] = sum;
  }
}

template <class T>
double cross_entropy(T* logits, const uint32_t* targets, size_t rows, size_t n, T scale) {
  double loss = 0;
  for (size_t i = 0; i < rows; ++i, logits += n) {
    T max = logits[0], sum = 0;
#pragma omp simd reduction(max : max)
    for (size_t j = 0; j < n; ++j) max = logits[j] > max ? logits[j] : max;
    const T target = logits[targets[i]] - max;
#pragma omp simd reduction(+ : sum)
    for (size_t j = 0; j < n; ++j) {
      const T e = exponential(logits[j] - max);
      logits[j] = e;
      sum += e;
    }
    const T factor = scale / sum;
    TROUPE_SIMD for (size_t j = 0; j < n; ++j) logits[j] *= factor;
    logits[targets[i]] -= scale;
    loss += static_cast<double>(logarithm(sum) - target);
  }
  return loss;
}

// A product of few rows: bound by reading the weights if these are read in long runs, ahead of
// their use, and as long as the sums stay in the first-level cache.

#if defined(__AVX512F__)
constexpr size_t vector_bytes = 64;
#elif defined(__AVX2__)
constexpr size_t vector_bytes = 32;
#else
constexpr size_t vector_bytes = 16;
#endif
constexpr size_t cache_line = 64;

template <class T>
struct vector_of {
  using type __attribute__((vector_size(vector_bytes), aligned(alignof(T)), may_alias)) = T;
  static constexpr size_t values = vector_bytes / sizeof(T);
};

/// Columns whose sums are kept. Of eight rows, these and the weights in use and needed next are
/// 48 KiB; of fewer rows long runs count for more. The sums' rows are so far apart that they are in
/// different sets of the cache, also where `columns` is a power of two.
template <int rows>
constexpr size_t tile_columns = rows == 8 ? 512 : 8192 / rows;
template <int rows>
constexpr size_t sums_stride = tile_columns<rows> + 16;

/// Products of several rows: terms that are added to a sum before it is stored, and vectors of
/// columns that share a load of their factors. AVX2 has 16 registers, and is bound by those loads.
#if defined(__AVX2__) && !defined(__AVX512F__)
constexpr int terms_of_many = 4, vectors_of_many = 2;
#else
constexpr int terms_of_many = 8, vectors_of_many = 1;
#endif

/// sums [rows, columns] += factors [rows, terms] * weight [terms, columns], whose rows are `stride`
/// values apart; columns: `vectors` vectors of them. ahead: how far on the weights are that are
/// needed next; 0: none.
template <class T, int rows, int terms, int vectors>
TROUPE_INLINE void add_vectors(const T* factors, const T* weight, size_t stride, size_t ahead,
                               T* sums) {
  using vector = typename vector_of<T>::type;
  constexpr auto values = vector_of<T>::values;
  vector weights[terms][vectors];
  for (int s = 0; s < terms; ++s)
    for (int v = 0; v < vectors; ++v) {
      const T* at = weight + static_cast<size_t>(s) * stride + static_cast<size_t>(v) * values;
      weights[s][v] = *reinterpret_cast<const vector*>(at);
      if (ahead > 0 && v == 0) __builtin_prefetch(at + ahead);
    }
  for (int r = 0; r < rows; ++r) {
    auto* at = reinterpret_cast<vector*>(sums + static_cast<size_t>(r) * sums_stride<rows>);
    vector sum[vectors];
    for (int v = 0; v < vectors; ++v) sum[v] = at[v];
    for (int s = 0; s < terms; ++s)
      for (int v = 0; v < vectors; ++v) sum[v] += factors[r * terms + s] * weights[s][v];
    for (int v = 0; v < vectors; ++v) at[v] = sum[v];
  }
}

/// The same for any number of columns that fills whole vectors.
template <class T, int rows, int terms>
TROUPE_INLINE void add_terms(const T* factors, const T* weight, size_t stride, size_t ahead,
                             size_t columns, T* sums) {
  constexpr auto values = vector_of<T>::values;
  constexpr int vectors = rows > 1 ? vectors_of_many : 1;
  size_t j = 0;
  for (; j + vectors * values <= columns; j += vectors * values) {
    // The compiler would otherwise keep the factors in registers, of which there are too few.
    asm("" : "+r"(factors));
    const size_t fetched = j * sizeof(T) % cache_line == 0 ? ahead : 0;
    add_vectors<T, rows, terms, vectors>(factors, weight + j, stride, fetched, sums + j);
  }
  for (; j < columns; j += values)
    add_vectors<T, rows, terms, 1>(factors, weight + j, stride, ahead, sums + j);
}

/// All terms, from the k-th on, as many as there are in groups of `terms`. Returns the next one's
/// k.
template <class T, int rows, int terms>
TROUPE_INLINE size_t add_groups(const T* in, const T* weight, size_t k, size_t inner, size_t stride,
                                size_t columns, T* sums) {
  T factors[rows * terms];
  for (; k + terms <= inner; k += terms) {
    for (int r = 0; r < rows; ++r)
      for (int s = 0; s < terms; ++s)
        factors[r * terms + s] = in[static_cast<size_t>(r) * inner + k + static_cast<size_t>(s)];
    // Runs of a single row are long, and the processor prefetches them itself.
    const bool more = rows > 1 && k + 2 * terms <= inner;
    add_terms<T, rows, terms>(factors, weight + k * stride, stride, more ? terms * stride : 0,
                              columns, sums);
  }
  return k;
}

/// The columns from `first` on, which fill no vector.
template <class T, int rows>
TROUPE_INLINE void add_last_columns(const T* in, const T* weight, size_t inner, size_t stride,
                                    size_t first, size_t columns, T* __restrict out) {
  if (first == columns) return;
  for (size_t k = 0; k < inner; ++k, weight += stride)
    for (size_t r = 0; r < rows; ++r) {
      const T factor = in[r * inner + k];
      TROUPE_SIMD for (size_t j = first; j < columns; ++j) out[r * stride + j] +=
          factor * weight[j];
    }
}

template <class T, int rows>
TROUPE_INLINE void add_tile(const T* in, const T* weight, size_t inner, size_t stride,
                            size_t columns, T* sums) {
  constexpr int terms = rows > 1 ? terms_of_many : 8;
  const auto k = add_groups<T, rows, terms>(in, weight, 0, inner, stride, columns, sums);
  add_groups<T, rows, 1>(in, weight, k, inner, stride, columns, sums);
}

template <class T, int rows>
TROUPE_INLINE void add_tiles(const T* in, const T* weight, size_t inner, size_t stride,
                             size_t columns, T* out) {
  constexpr auto max = tile_columns<rows>, apart = sums_stride<rows>;
  alignas(cache_line) T sums[rows * apart];
  for (size_t j = 0; j < columns; j += max) {
    const size_t tile = columns - j < max ? columns - j : max;
    for (size_t r = 0; r < rows; ++r)
      __builtin_memcpy(sums + r * apart, out + r * stride + j, tile * sizeof(T));
    add_tile<T, rows>(in, weight + j, inner, stride, tile, sums);
    for (size_t r = 0; r < rows; ++r)
      __builtin_memcpy(out + r * stride + j, sums + r * apart, tile * sizeof(T));
  }
}

template <class T, int rows>
void add_product_of(const T* in, const T* weight, size_t inner, size_t stride, size_t columns,
                    T* out) {
  const size_t whole = columns / vector_of<T>::values * vector_of<T>::values;
  if constexpr (rows == 1)  // the longest runs; its sums are few
    add_tile<T, rows>(in, weight, inner, stride, whole, out);
  else
    add_tiles<T, rows>(in, weight, inner, stride, whole, out);
  add_last_columns<T, rows>(in, weight, inner, stride, whole, columns, out);
}

template <class T>
void add_product(const T* in, size_t rows, const T* weight, size_t inner, size_t stride,
                 size_t columns, T* out) {
  if (rows == 1)
    add_product_of<T, 1>(in, weight, inner, stride, columns, out);
  else if (rows == 2)
    add_product_of<T, 2>(in, weight, inner, stride, columns, out);
  else if (rows <= 4)
    add_product_of<T, 4>(in, weight, inner, stride, columns, out);
  else
    add_product_of<T, 8>(in, weight, inner, stride, columns, out);
}

template <class T>
void rms_norm(const T* in, const T* weight, size_t rows, size_t n, T epsilon, T* __restrict out) {
  for (size_t i = 0; i < rows; ++i, in += n, out += n) {
    T squares = 0;
#pragma omp simd reduction(+ : squares)
    for (size_t j = 0; j < n; ++j) squares += in[j] * in[j];
    const T inverse = T{1} / root(squares / static_cast<T>(n) + epsilon);
    TROUPE_SIMD for (size_t j = 0; j < n; ++j) out[j] = in[j] * inverse * weight[j];
  }
}

template <class T>
void rotate(T* values, size_t heads, size_t width, const T* cosines, const T* sines) {
  const size_t half = width / 2;
  for (size_t h = 0; h < heads; ++h) {
    T* __restrict low = values + h * width;
    T* __restrict high = low + half;
    TROUPE_SIMD for (size_t j = 0; j < half; ++j) {
      const T x = low[j], y = high[j];
      low[j] = x * cosines[j] - y * sines[j];
      high[j] = y * cosines[j] + x * sines[j];
    }
  }
}

template <class T>
void silu_gate(const T* in, size_t rows, size_t n, T* __restrict out) {
  for (size_t i = 0; i < rows; ++i, in += 2 * n, out += n) {
    TROUPE_SIMD for (size_t j = 0; j < n; ++j) out[j] =
        in[j] / (T{1} + exponential(-in[j])) * in[n + j];
  }
}

template <class T>
void dots(const T* one, const T* rows, size_t count, size_t n, T* __restrict out) {
  for (size_t i = 0; i < count; ++i, rows += n) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t j = 0; j < n; ++j) sum += one[j] * rows[j];
    out[i] = sum;
  }
}

template <class T>
void add_weighted_rows(const T* weights, const T* rows, size_t count, size_t n, T* __restrict out) {
  for (size_t i = 0; i < count; ++i, rows += n) {
    const T weight = weights[i];
    TROUPE_SIMD for (size_t j = 0; j < n; ++j) out[j] += weight * rows[j];
  }
}

template <class T>
void add(T* __restrict to, const T* what, size_t n) {
  TROUPE_SIMD for (size_t i = 0; i < n; ++i) to[i] += what[i];
}

template <class T>
constexpr kernels<T> table(const char* name, adamw_function<T>* adamw) {
  return {name,
          embed<T>,
          embed_backward<T>,
          add_bias<T>,
          sum_rows<T>,
          layer_norm<T>,
          layer_norm_backward<T>,
          bias_gelu<T>,
          gelu_backward<T>,
          causal_softmax<T>,
          causal_softmax_backward<T>,
          row_dots<T>,
          cross_entropy<T>,
          add_product<T>,
          rms_norm<T>,
          rotate<T>,
          silu_gate<T>,
          dots<T>,
          add_weighted_rows<T>,
          add<T>,
          adamw};
}

}  // namespace

}  // namespace troupe::gpu::cpu
