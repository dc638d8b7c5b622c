#pragma once

#include "gpu/cpu/kernels/kernel_table.hpp"

// The kernels compiled for each instruction set.

namespace troupe::gpu::cpu {

adamw_function<float> plain_adamw, avx2_adamw, avx512_adamw;  // updates_*.cpp
adamw_function<double> plain_double_adamw;

extern const kernels<float> plain_kernels;
extern const kernels<double> plain_double_kernels;
#ifdef TROUPE_X86
extern const kernels<float> avx2_kernels;    // with FMA
extern const kernels<float> avx512_kernels;  // F, BW, DQ, VL
#endif

}  // namespace troupe::gpu::cpu
