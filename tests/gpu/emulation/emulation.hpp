#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// Runs the CUDA device's kernels without a GPU: a block's threads are fibers that take turns at
// barriers and at what a warp does together. Blocks run one after another.

namespace troupe::test {

/// The choices that a GPU is free to make, on which no result may depend.
struct kernel_schedule {
  /// Which thread of a block has the first turn: the result depends on it if a barrier is missing.
  enum class threads : bool { ascending, descending } first_turn = threads::ascending;
  /// When a copy to shared memory is made that the thread goes on beside: where it is asked for, or
  /// where it is awaited, its destination not a number in between. A missing wait shows in the
  /// second, a buffer that is used again too early in the first.
  enum class copies : bool { at_once, when_awaited } ahead = copies::at_once;
  /// In which order a grid's blocks run.
  enum class blocks : std::uint8_t { ascending, descending, shuffled } order = blocks::ascending;
  std::uint64_t seed = 1;  // of what is shuffled
};
void set_kernel_schedule(kernel_schedule s);

/// A few that differ in everything.
std::vector<kernel_schedule> kernel_schedules();

/// The blocks of a grid, in the order in which they run.
std::vector<std::size_t> block_order(std::size_t count);

void run_block(void (*body)(const void*), const void* argument, int threads, int block, int block_y,
               std::size_t shared_bytes);

template <class Kernel>
void run_kernel(const Kernel& kernel, std::size_t blocks, std::size_t blocks_y,
                std::size_t shared_bytes) {
  const auto body = [](const void* k) { (*static_cast<const Kernel*>(k))(); };
  for (const auto i : block_order(blocks * blocks_y))
    run_block(body, &kernel, Kernel::threads, static_cast<int>(i % blocks),
              static_cast<int>(i / blocks), shared_bytes);
}

}  // namespace troupe::test
