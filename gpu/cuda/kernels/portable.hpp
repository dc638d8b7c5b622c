#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

// The compiler-dependent part of kernels. nvcc compiles them for GPUs; other compilers make plain
// functions whose threads the tests run as fibers (tests/gpu/emulation/emulation.cpp defines what
// is only declared here), so that kernels are tested without a GPU.

#ifdef __CUDACC__
#define TROUPE_DEVICE __device__ __forceinline__
#define TROUPE_UNROLL _Pragma("unroll")
#else
#define TROUPE_DEVICE inline
#define TROUPE_UNROLL
#endif

namespace troupe::gpu::cuda {

/// The upper half of a 32-bit float.
struct bf16 {
  std::uint16_t bits;
};
static_assert(sizeof(bf16) == 2);

/// Four values that are read and written together, with the alignment of their size.
template <class T>
struct alignas(4 * sizeof(T)) four {
  T at[4];
};
/// Eight of them, 16 bytes.
struct alignas(16) eight {
  std::uint32_t at[4];
};

#ifdef __CUDACC__

TROUPE_DEVICE int thread_id() {
  return static_cast<int>(threadIdx.x);
}
TROUPE_DEVICE int block_id() {
  return static_cast<int>(blockIdx.x);
}
TROUPE_DEVICE int block_id_y() {
  return static_cast<int>(blockIdx.y);
}
TROUPE_DEVICE void sync_threads() {
  __syncthreads();
}
/// The value of the lane whose number differs in the bits of `mask`. All lanes of a warp must call
/// it.
TROUPE_DEVICE float shuffle_xor(float v, int mask) {
  return __shfl_xor_sync(0xffffffffu, v, mask);
}
TROUPE_DEVICE double shuffle_xor(double v, int mask) {
  return __shfl_xor_sync(0xffffffffu, v, mask);
}
TROUPE_DEVICE float exponential2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
TROUPE_DEVICE float logarithm2(float x) {
  return __log2f(x);
}
TROUPE_DEVICE float reciprocal(float x) {
  return __fdividef(1.0f, x);
}
TROUPE_DEVICE float reciprocal_root(float x) {
  return rsqrtf(x);
}
TROUPE_DEVICE float root(float x) {
  return sqrtf(x);
}
// Each rounded by itself: not contracted, and none of the faster forms that flags may allow.
TROUPE_DEVICE float rounded_product(float a, float b) {
  return __fmul_rn(a, b);
}
TROUPE_DEVICE float rounded_sum(float a, float b) {
  return __fadd_rn(a, b);
}
TROUPE_DEVICE float rounded_quotient(float a, float b) {
  return __fdiv_rn(a, b);
}
TROUPE_DEVICE float rounded_root(float x) {
  return __fsqrt_rn(x);
}
/// The block's dynamic shared memory.
TROUPE_DEVICE unsigned char* shared_memory() {
  extern __shared__ __align__(16) unsigned char troupe_shared[];
  return troupe_shared;
}
/// Asynchronous copy of 16 bytes to shared memory; 0 if not `there`.
TROUPE_DEVICE void copy_ahead(eight* to, const eight* from, bool there) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}
/// Waits for the thread's copies; other threads see them after a barrier.
TROUPE_DEVICE void await_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}
/// Two values in one word, the first in the lower half, each rounded to nearest.
TROUPE_DEVICE std::uint32_t pack(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
TROUPE_DEVICE float to_float(bf16 v) {
  return __uint_as_float(static_cast<std::uint32_t>(v.bits) << 16);
}
TROUPE_DEVICE bf16 to_bf16(float v) {
  return {static_cast<std::uint16_t>(pack(v, 0.0f) & 0xffffu)};
}

/// Loads four 8 x 8 matrices from shared memory. Lane i gives the address of row i % 8 of matrix i
/// / 8, aligned to 16 bytes; it gets the values (i / 4, 2 (i % 4)) and the next of each matrix.
TROUPE_DEVICE void load_matrices(std::uint32_t (&to)[4], const bf16* row) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}
/// The same, transposed.
TROUPE_DEVICE void load_matrices_turned(std::uint32_t (&to)[4], const bf16* row) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}
/// c (16 x 8, floats) += a (16 x 16) b (16 x 8) by a warp, in the layout of PTX's m16n8k16.
TROUPE_DEVICE void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#else

int thread_id();
int block_id();
int block_id_y();
void sync_threads();
float shuffle_xor(float v, int mask);
double shuffle_xor(double v, int mask);
unsigned char* shared_memory();
TROUPE_DEVICE float rounded_product(float a, float b) {
  return a * b;
}
TROUPE_DEVICE float rounded_sum(float a, float b) {
  return a + b;
}
TROUPE_DEVICE float rounded_quotient(float a, float b) {
  return a / b;
}
TROUPE_DEVICE float rounded_root(float x) {
  return std::sqrt(x);
}
void copy_ahead(eight* to, const eight* from, bool there);
void await_copies();
void load_matrices(std::uint32_t (&to)[4], const bf16* row);
void load_matrices_turned(std::uint32_t (&to)[4], const bf16* row);
void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);

inline float exponential2(float x) {
  return std::exp2(x);
}
inline float logarithm2(float x) {
  return std::log2(x);
}
inline float reciprocal(float x) {
  return 1.0f / x;
}
inline float reciprocal_root(float x) {
  return 1.0f / std::sqrt(x);
}
inline float root(float x) {
  return std::sqrt(x);
}
inline float to_float(bf16 v) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(v.bits) << 16);
}
inline bf16 to_bf16(float v) {  // round to nearest even
  const auto bits = __builtin_bit_cast(std::uint32_t, v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
inline std::uint32_t pack(float low, float high) {
  return to_bf16(low).bits | static_cast<std::uint32_t>(to_bf16(high).bits) << 16;
}

#endif

TROUPE_DEVICE float to_float(float v) {
  return v;
}
TROUPE_DEVICE void store(float* to, float v) {
  *to = v;
}
TROUPE_DEVICE void store(bf16* to, float v) {
  *to = to_bf16(v);
}

/// Four values converted from and to either type.
TROUPE_DEVICE four<float> load_four(const float* from) {
  return *reinterpret_cast<const four<float>*>(from);
}
TROUPE_DEVICE four<float> load_four(const bf16* from) {
  const auto raw = *reinterpret_cast<const four<bf16>*>(from);
  return {{to_float(raw.at[0]), to_float(raw.at[1]), to_float(raw.at[2]), to_float(raw.at[3])}};
}
TROUPE_DEVICE void store_four(float* to, const four<float>& v) {
  *reinterpret_cast<four<float>*>(to) = v;
}
TROUPE_DEVICE void store_four(bf16* to, const four<float>& v) {
  struct alignas(8) two {
    std::uint32_t at[2];
  };
  *reinterpret_cast<two*>(to) = {{pack(v.at[0], v.at[1]), pack(v.at[2], v.at[3])}};
}

constexpr int lanes = 32;

/// The sum over a warp's lanes, returned to all of them.
template <class T>
TROUPE_DEVICE T warp_sum(T v) {
  TROUPE_UNROLL
  for (int mask = lanes / 2; mask > 0; mask /= 2) v += shuffle_xor(v, mask);
  return v;
}
TROUPE_DEVICE float larger(float a, float b) {
  return fmaxf(a, b);
}
TROUPE_DEVICE float warp_largest(float v) {
  TROUPE_UNROLL
  for (int mask = lanes / 2; mask > 0; mask /= 2) v = larger(v, shuffle_xor(v, mask));
  return v;
}

/// gelu(x) = x s(x), in its form with tanh; s(x) = 1 / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715
/// x^3).
constexpr float gelu_factor = 1.5957691216f, gelu_cube = 0.044715f, log2_e = 1.44269504089f;

TROUPE_DEVICE float gelu_cdf(float x) {
  const float twice = gelu_factor * x * (1.0f + gelu_cube * x * x);
  return reciprocal(1.0f + exponential2(-twice * log2_e));
}
TROUPE_DEVICE float gelu_slope(float x) {
  const float cdf = gelu_cdf(x);
  const float slope = gelu_factor * (1.0f + 3.0f * gelu_cube * x * x);
  return cdf + x * cdf * (1.0f - cdf) * slope;
}

}  // namespace troupe::gpu::cuda
