#include "gpu/cpu/kernels/kernel_sets.hpp"
#include "gpu/cpu/kernels/kernels.inc.hpp"

namespace troupe::gpu::cpu {

constinit const kernels<float> avx2_kernels = table<float>("avx2", avx2_adamw);

}  // namespace troupe::gpu::cpu
