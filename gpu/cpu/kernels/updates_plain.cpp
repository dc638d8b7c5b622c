#include "gpu/cpu/kernels/kernel_sets.hpp"
#include "gpu/cpu/kernels/updates.inc.hpp"

namespace troupe::gpu::cpu {

double plain_adamw(float* values, float* first_moments, float* second_moments,
                   const float* gradients, std::size_t n, const adamw_step& how) {
  return adamw(values, first_moments, second_moments, gradients, n, how);
}
double plain_double_adamw(double* values, double* first_moments, double* second_moments,
                          const double* gradients, std::size_t n, const adamw_step& how) {
  return adamw(values, first_moments, second_moments, gradients, n, how);
}

}  // namespace troupe::gpu::cpu
