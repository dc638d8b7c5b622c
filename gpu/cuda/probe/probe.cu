#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <concepts>

template <std::integral T>
__global__ void increment(T* value) {
  ++*value;
}

int launched() {
  increment<int><<<1, 1>>>(nullptr);
  return static_cast<int>(cudaGetLastError()) + CUBLAS_STATUS_SUCCESS;
}
