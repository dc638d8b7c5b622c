#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/cuda/runtime/machine.hpp"

namespace troupe::test {

/// The CUDA device's kernels as they are, on emulated threads; products of matrices in 32-bit
/// floats from rounded factors, as tensor cores make them. Memory that was never set is not a
/// number. It is as strict as a GPU is:
/// - it is a device of its own, and refuses what a thread asks of it while another one is current;
/// - it refuses products of matrices in memory of the host, which some of cuBLASLt's kernels cannot
///   read;
/// - it refuses launches beyond CUDA's limits, and kernels that were not prepared on it;
/// - copies to and from the host, and kernels, are streams of their own with events between them.
///   `seed`: some of what they are asked for is put off until somebody waits for it; 0: nothing;
/// - memory that copies touch is overwritten as soon as its pool has it back;
/// - while emulated GPUs wait for each other's sums, one that has `sums` too refuses memory and
///   products of a new shape, for which a real one might wait as long as they do;
/// - it has `capacity_bytes` of memory for `take`, and refuses more as a GPU does.
std::unique_ptr<gpu::cuda::machine> emulated_machine(const gpu::cuda::collectives* sums = nullptr,
                                                     std::uint64_t seed = 1,
                                                     std::size_t capacity_bytes = std::size_t{1}
                                                                                  << 40);

/// a b, in 32-bit floats from rounded factors, row-major and dense: the emulated machine's
/// products.
std::vector<float> multiplied(const gpu::cuda::operand& a, const gpu::cuda::operand& b);

/// Adds to the number of emulated GPUs that wait for each other.
void members_wait(int more);

}  // namespace troupe::test
