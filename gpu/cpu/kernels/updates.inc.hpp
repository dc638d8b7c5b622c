#pragma once

#include <cstddef>

#include "gpu/cpu/kernels/kernels.hpp"

// AdamW's source, compiled once for each instruction set as the kernels are, but without
// contraction of products and sums: every set, and the CUDA device, makes the same bits, so that
// replicas of a stage stay equal on unlike processors. Calls no inline functions of libraries
// (kernels.inc.hpp).

namespace troupe::gpu::cpu {

namespace {

inline float root(float x) {
  return __builtin_sqrtf(x);
}
inline double root(double x) {
  return __builtin_sqrt(x);
}

/// The squares of a run are summed in `lanes` sums, whatever the width of vectors: one order for
/// all instruction sets.
template <class T>
double adamw(T* __restrict values, T* __restrict first_moments, T* __restrict second_moments,
             const T* __restrict gradients, std::size_t n, const adamw_step& how) {
  const T scale = static_cast<T>(how.scale), beta1 = static_cast<T>(how.beta1),
          beta2 = static_cast<T>(how.beta2), keep1 = static_cast<T>(1 - how.beta1),
          keep2 = static_cast<T>(1 - how.beta2), epsilon = static_cast<T>(how.epsilon),
          rate = static_cast<T>(how.learning_rate / how.correction1),
          correct = static_cast<T>(1 / how.correction2),
          shrink = static_cast<T>(1 - how.learning_rate * how.decay);
  constexpr std::size_t run = 4096, lanes = 16;  // values per partial sum of type T
  double norm = 0;
  for (std::size_t begin = 0; begin < n; begin += run) {
    const std::size_t end = begin + run < n ? begin + run : n;
    T squares[lanes] = {};
    for (std::size_t at = begin; at < end; at += lanes) {
      const std::size_t count = at + lanes < end ? lanes : end - at;
#pragma omp simd
      for (std::size_t j = 0; j < count; ++j) {
        const std::size_t i = at + j;
        const T g = gradients[i] * scale;
        const T m = beta1 * first_moments[i] + keep1 * g;
        const T v = beta2 * second_moments[i] + keep2 * g * g;
        first_moments[i] = m;
        second_moments[i] = v;
        values[i] = values[i] * shrink - rate * m / (root(v * correct) + epsilon);
        squares[j] += g * g;
      }
    }
    T sum = 0;
    for (std::size_t j = 0; j < lanes; ++j) sum += squares[j];
    norm += static_cast<double>(sum);
  }
  return norm;
}

}  // namespace

}  // namespace troupe::gpu::cpu
