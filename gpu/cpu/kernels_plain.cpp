#include "gpu/cpu/kernel_sets.hpp"
#include "gpu/cpu/kernels.inc.hpp"

namespace troupe::gpu::cpu {

constinit const kernels<float> plain_kernels = table<float>("plain");
constinit const kernels<double> plain_double_kernels = table<double>("plain");

}  // namespace troupe::gpu::cpu
