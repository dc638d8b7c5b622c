#pragma once

#include <memory>
#include <string>

#include "gpu/cuda/runtime/machine.hpp"

// GPUs of the fake CUDA, opened through plugin.cu.

namespace troupe::test {

struct opened_gpu {
  std::shared_ptr<gpu::cuda::machine> m;
  std::string why;
  bool lost = false;
};
opened_gpu open_gpu(int index);

}  // namespace troupe::test
