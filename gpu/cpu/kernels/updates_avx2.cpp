#include "gpu/cpu/kernels/kernel_sets.hpp"
#include "gpu/cpu/kernels/updates.inc.hpp"

namespace troupe::gpu::cpu {

double avx2_adamw(float* values, float* first_moments, float* second_moments,
                  const float* gradients, std::size_t n, const adamw_step& how) {
  return adamw(values, first_moments, second_moments, gradients, n, how);
}

}  // namespace troupe::gpu::cpu
