#include "gpu/cpu/kernels.hpp"

#include "gpu/cpu/kernel_sets.hpp"

namespace troupe::gpu::cpu {

// The widest instruction set of this processor. Bits of results may differ between instruction sets
// (order of partial sums, fused multiply-add), but not between runs on the same kind of processor.
const kernels<float>& float_kernels() {
#ifdef TROUPE_X86
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return avx512_kernels;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2_kernels;
#endif
  return plain_kernels;
}

// Doubles serve the tests that compare gradients with finite differences; speed is irrelevant
// there.
const kernels<double>& double_kernels() {
  return plain_double_kernels;
}

}  // namespace troupe::gpu::cpu
