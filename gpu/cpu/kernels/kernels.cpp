#include "gpu/cpu/kernels/kernels.hpp"

#include "gpu/cpu/kernels/kernel_sets.hpp"

namespace troupe::gpu::cpu {

const std::vector<const kernels<float>*>& usable_float_kernels() {
  static const auto usable = [] {
    std::vector<const kernels<float>*> sets{&plain_kernels};
#ifdef TROUPE_X86
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      sets.push_back(&avx2_kernels);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      sets.push_back(&avx512_kernels);
#endif
    return sets;
  }();
  return usable;
}

// Bits of results but AdamW's may differ between instruction sets (order of partial sums, fused
// multiply-add), but not between runs on the same kind of processor.
const kernels<float>& float_kernels() {
  return *usable_float_kernels().back();
}

// Doubles serve the tests that compare gradients with finite differences; speed is irrelevant
// there.
const kernels<double>& double_kernels() {
  return plain_double_kernels;
}

}  // namespace troupe::gpu::cpu
