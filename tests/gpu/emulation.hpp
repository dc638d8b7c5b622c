#pragma once

#include <cstddef>

// Runs the CUDA device's kernels without a GPU: a block's threads are fibers that take turns at
// barriers and at what a warp does together. Blocks run one after another.

namespace troupe::test {

/// Which thread of a block has the first turn. What a kernel gives does not depend on it, unless a
/// barrier is missing.
enum class turns : bool { ascending, descending };
void set_turns(turns t);

void run_block(void (*body)(const void*), const void* argument, int threads, int block, int block_y,
               std::size_t shared_bytes);

template <class Kernel>
void run_kernel(const Kernel& kernel, std::size_t blocks, std::size_t blocks_y,
                std::size_t shared_bytes) {
  const auto body = [](const void* k) { (*static_cast<const Kernel*>(k))(); };
  for (std::size_t y = 0; y < blocks_y; ++y)
    for (std::size_t x = 0; x < blocks; ++x)
      run_block(body, &kernel, Kernel::threads, static_cast<int>(x), static_cast<int>(y),
                shared_bytes);
}

}  // namespace troupe::test
