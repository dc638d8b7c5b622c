#pragma once

#include <vector>

#include "gpu/cpu/kernels/kernel_table.hpp"

namespace troupe::gpu::cpu {

/// The sets that this processor supports, the fastest last.
const std::vector<const kernels<float>*>& usable_float_kernels();
/// The fastest of them.
const kernels<float>& float_kernels();
/// A reference for tests.
const kernels<double>& double_kernels();

template <class T>
const kernels<T>& kernels_for();
template <>
inline const kernels<float>& kernels_for<float>() {
  return float_kernels();
}
template <>
inline const kernels<double>& kernels_for<double>() {
  return double_kernels();
}

}  // namespace troupe::gpu::cpu
