#include "gpu/cpu/kernels/matrix.hpp"

#ifdef TROUPE_EIGEN
#include "gpu/cpu/kernels/products.hpp"
#else
#include <dnnl.h>
#include <omp.h>
#endif

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace troupe::gpu::cpu {

namespace {

template <class T>
T value(const matrix<const T>& m, std::size_t row, std::size_t column) {
  return m.turned ? m.at[column * m.stride + row] : m.at[row * m.stride + column];
}

}  // namespace

#ifdef TROUPE_EIGEN

namespace {

// The same choice as float_kernels(), so that a process uses one instruction set throughout.
product_function* best_product() {
#ifdef TROUPE_X86
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return avx512_product;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2_product;
#endif
  return plain_product;
}

}  // namespace

void multiply(matrix<const float> a, matrix<const float> b, matrix<float> c, into how) {
  static product_function* const best = best_product();
  best(a, b, c, how);
}

std::string products_library() {
  return "Eigen";
}

#else

void multiply(matrix<const float> a, matrix<const float> b, matrix<float> c, into how) {
  const auto size = [](std::size_t n) { return static_cast<dnnl_dim_t>(n); };
  dnnl_sgemm(a.turned ? 'T' : 'N', b.turned ? 'T' : 'N', size(c.rows), size(c.columns),
             size(a.columns), 1.0f, a.at, size(a.stride), b.at, size(b.stride),
             how == into::add ? 1.0f : 0.0f, c.at, size(c.stride));
}

std::string products_library() {
  const auto* v = dnnl_version();
  return "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." +
         std::to_string(v->patch);
}

#endif

// The reference for tests: plain sums in the order of `k`, without blocking.
void multiply(matrix<const double> a, matrix<const double> b, matrix<double> c, into how) {
  for (std::size_t i = 0; i < c.rows; ++i)
    for (std::size_t j = 0; j < c.columns; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < a.columns; ++k) sum += value(a, i, k) * value(b, k, j);
      auto& out = c.at[i * c.stride + j];
      out = how == into::add ? out + sum : sum;
    }
}

// One thread per device: with more, the library could split sums differently and change their bits,
// and the devices of a node would compete for cores. Denormals are flushed because they slow down
// some processors by a factor of a hundred and carry no information for training.
void prepare_thread() {
#ifndef TROUPE_EIGEN
  omp_set_num_threads(1);
#endif
#ifdef __SSE2__
  _mm_setcsr(_mm_getcsr() | 0x8040);  // flush results to zero, read denormals as zero
#endif
}

}  // namespace troupe::gpu::cpu
