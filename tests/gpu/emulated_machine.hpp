#pragma once

#include <memory>

#include "gpu/cuda/machine.hpp"

namespace troupe::test {

/// The CUDA device's kernels as they are, on emulated threads; products of matrices in 32-bit
/// floats from rounded factors, as tensor cores make them. Memory that nobody has set is not a
/// number.
std::unique_ptr<gpu::cuda::machine> emulated_machine();

}  // namespace troupe::test
