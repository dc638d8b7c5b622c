#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "gpu/emulation/late_stream.hpp"

// CUDA's runtime and cuBLASLt without a GPU: what plugin.cu is linked with in its own tests.
// Kernels run on emulated threads, products are computed from what cuBLASLt was given alone, and
// streams are threads that may be as late as CUDA allows. It keeps CUDA's rules about devices,
// memory, streams and graphs, and refuses what breaks them.

namespace troupe::test::fake_cuda {

constexpr int device_count = 3;
constexpr double elapsed_s = 0.001;  // between any two timing events

/// The numbers of calls since the last reset.
struct counts {
  std::size_t launches = 0, products = 0;
  std::size_t choices = 0;     // cuBLASLt was asked for an algorithm
  std::size_t late_loads = 0;  // a kernel's first use on a device was its launch
  std::size_t graphs = 0;      // launches of graphs
  std::size_t syncs = 0;       // events that were waited for
};
counts& seen();

/// The next call of that function is refused.
void refuse_once(const std::string& function, cudaError_t with);
/// From now on every call fails on that device; cudaSuccess: no more.
void lose(int device, cudaError_t with);
/// Sets the error of cudaGetDeviceCount; cudaSuccess: it returns the number of devices.
void no_devices(cudaError_t why);

/// The calling thread's.
int current_device();

/// The paces of a machine's streams, in the order of their creation: kernels, copies in, copies
/// out, sums beside the kernels.
using stream_paces = std::array<stream_pace, 4>;
/// Every choice of "at once" and "late", and some in between.
std::vector<stream_paces> all_paces();

/// Puts settings back at the end of its scope.
class settings {
 public:
  settings();
  ~settings();
  /// Kernels and products are not run: their arguments may be anything.
  void rules_only();
  /// cuBLASLt has no algorithm for any epilogue but the default one.
  void no_epilogues();
  bool has_epilogues() const;
  /// Sets the byte that new memory is filled with; 0xff by default: floats are not a number.
  void new_memory(unsigned char byte);
  /// Sets the paces of each machine's streams; by default all run at once.
  void paces(const stream_paces& p);
  settings(const settings&) = delete;
};

}  // namespace troupe::test::fake_cuda
