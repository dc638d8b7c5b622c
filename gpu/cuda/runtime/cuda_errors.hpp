#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

#include "gpu/cuda/runtime/blas_library.hpp"
#include "gpu/cuda/runtime/machine.hpp"

// Errors of CUDA and cuBLASLt as exceptions.

namespace troupe::gpu::cuda {

/// Errors after which no call of this process on that GPU succeeds: according to CUDA's manual the
/// process has to be restarted.
inline bool loses_gpu(cudaError_t e) {
  switch (e) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
#if CUDART_VERSION >= 12080
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
#endif
      return true;
    default:
      return false;
  }
}

inline void check(cudaError_t e, const char* function) {
  if (e == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that it is not reported by the next call
  if (e == cudaErrorMemoryAllocation)
    throw gpu_out_of_memory(std::string{"the GPU refused "} + function + ": out of memory");
  const auto text = std::string{"the GPU refused "} + function + ": " + cudaGetErrorString(e);
  if (!loses_gpu(e)) throw std::runtime_error(text);
  throw gpu_lost(text + "; this GPU is lost until the process is restarted");
}
/// Checks an allocation, with the GPU's free memory if that is what it came from.
inline void check_allocated(cudaError_t e, const char* function, std::size_t bytes,
                            bool of_gpu = true) {
  if (e != cudaErrorMemoryAllocation)
    return check(e, (function + (" of " + std::to_string(bytes) + " bytes")).c_str());
  cudaGetLastError();
  std::size_t free = 0, total = 0;
  if (of_gpu && cudaMemGetInfo(&free, &total) != cudaSuccess) total = 0, cudaGetLastError();
  throw gpu_out_of_memory(out_of_memory_text(function, bytes, free, total));
}
inline void check(cublasStatus_t s, const char* function) {
  if (s == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string{"cuBLASLt failed in "} + function + ": " +
                           blas_library::loaded().status_name(s));
}
// Both add the failed function's name to the error.
#define CALL(function, ...) check(function(__VA_ARGS__), #function)
#define BLAS(function, ...) check(blas_library::loaded().function(__VA_ARGS__), #function)

}  // namespace troupe::gpu::cuda
