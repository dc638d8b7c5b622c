#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

// CUDA's runtime and cuBLASLt without a GPU: what plugin.cu is linked with in its own tests. It
// keeps CUDA's rules about devices, and computes nothing: copies are made at once, kernels and
// products are not.

namespace troupe::test::fake_cuda {

constexpr int device_count = 3;

/// What was done since the last reset.
struct counts {
  std::size_t launches = 0, products = 0;
  std::size_t choices = 0;     // cuBLASLt was asked for an algorithm
  std::size_t late_loads = 0;  // a kernel's first use on a device was its launch
};
counts& seen();

/// The next call of that function is refused.
void refuse_once(const std::string& function, cudaError_t with);
/// From now on every call fails on that device; cudaSuccess: no more.
void lose(int device, cudaError_t with);

/// The calling thread's.
int current_device();

}  // namespace troupe::test::fake_cuda
