#include "gpu/cpu/kernels/kernel_sets.hpp"
#include "gpu/cpu/kernels/kernels.inc.hpp"

namespace troupe::gpu::cpu {

constinit const kernels<float> avx512_kernels = table<float>("avx512", avx512_adamw);

}  // namespace troupe::gpu::cpu
