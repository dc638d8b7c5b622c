#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "gpu/plugin/fake_cuda.hpp"

// The state that the sources of the fake CUDA share.

namespace troupe::test::fake_cuda {

struct fake_graph {
  std::vector<std::function<void()>> operations;
};

struct fake_stream {
  int device;
  std::shared_ptr<late_stream> queue;
  std::unique_ptr<fake_graph> capture{};  // operations go there, if any
  bool capture_is_invalid = false;
};

struct switches {
  bool runs = true, epilogues = true;
  unsigned char new_memory = 0xff;
  stream_paces paces{};
};
switches& switched();

std::recursive_mutex& guard();
cudaError_t fails(cudaError_t e);
/// The check at the beginning of every call: the error that it fails with.
cudaError_t begins(const char* function, int where = current_device());

inline fake_stream& of(cudaStream_t s) {
  return *reinterpret_cast<fake_stream*>(s);
}
/// At the stream's end, or in the graph that is being captured there.
void enqueue(fake_stream& s, std::function<void()> what);
/// All streams of a device; null: of all devices. Do not hold the guard.
void finish(std::optional<int> device);

enum class memory_kind { gpu, host };
/// Whether all those bytes are in one allocation of that kind that the device can reach.
bool can_reach(const void* at, std::size_t bytes, memory_kind kind, int device);
/// Whether the address is in any allocation.
bool is_allocated(const void* at);

/// The kernel behind a function that nvcc registered, ready to run with those arguments; empty:
/// there is none.
std::function<void()> kernel_of(const void* function, const void* argument, dim3 grid,
                                std::size_t shared_bytes);
void add_kernel(const void* function, const char* mangled);

}  // namespace troupe::test::fake_cuda
