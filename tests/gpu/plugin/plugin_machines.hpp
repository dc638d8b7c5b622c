#pragma once

#include <memory>
#include <string>

#include "gpu/cuda/runtime/machine.hpp"
#include "messages/domain/model.hpp"

// GPUs of the fake CUDA, opened through plugin.cu, and a model for them.

namespace troupe::test {

struct opened_gpu {
  std::shared_ptr<gpu::cuda::machine> m;
  std::string why;
  gpu::cuda::open_failure kind = gpu::cuda::open_failure::unusable;
};
opened_gpu open_gpu(int index);

/// Heads so wide that the emulated machine has a GPU's tiles for them.
model wide_model();

}  // namespace troupe::test
