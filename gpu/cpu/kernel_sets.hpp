#pragma once

#include "gpu/cpu/kernels.hpp"

// The kernels compiled for each instruction set.

namespace troupe::gpu::cpu {

extern const kernels<float> plain_kernels;
extern const kernels<double> plain_double_kernels;
#ifdef TROUPE_X86
extern const kernels<float> avx2_kernels;    // with FMA
extern const kernels<float> avx512_kernels;  // F, BW, DQ, VL
#endif

}  // namespace troupe::gpu::cpu
