#include "gpu/cpu/kernels/kernel_sets.hpp"
#include "gpu/cpu/kernels/kernels.inc.hpp"

namespace troupe::gpu::cpu {

constinit const kernels<float> plain_kernels = table<float>("plain", plain_adamw);
constinit const kernels<double> plain_double_kernels = table<double>("plain", plain_double_adamw);

}  // namespace troupe::gpu::cpu
