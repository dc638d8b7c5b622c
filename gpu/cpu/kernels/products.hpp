#pragma once

#include "gpu/cpu/kernels/matrix_view.hpp"

// Eigen's matrix product compiled for each instruction set, for builds without oneDNN.

namespace troupe::gpu::cpu {

using product_function = void(matrix<const float> a, matrix<const float> b, matrix<float> c,
                              into how);
product_function plain_product;
#ifdef TROUPE_X86
product_function avx2_product;    // with FMA
product_function avx512_product;  // F, BW, DQ, VL
#endif

}  // namespace troupe::gpu::cpu
