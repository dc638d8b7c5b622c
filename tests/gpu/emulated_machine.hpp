#pragma once

#include <functional>
#include <memory>

#include "gpu/cuda/machine.hpp"

namespace troupe::test {

/// The CUDA device's kernels as they are, on emulated threads; products of matrices in 32-bit
/// floats from rounded factors, as tensor cores make them. Memory that nobody has set is not a
/// number. It does what it is asked for on a thread of its own, as a GPU does.
std::unique_ptr<gpu::cuda::machine> emulated_machine(const gpu::cuda::collectives* sums = nullptr);

/// What stands for a GPU's stream in `collectives`: whoever is asked first is done first.
class emulated_stream {
 public:
  virtual ~emulated_stream() = default;
  virtual void ask(std::function<void()> what) = 0;
};

}  // namespace troupe::test
