#pragma once

#include <cstdint>

#include "gpu/worker/python_device.hpp"
#include "messages/domain/profile.hpp"

// The time of a worker beside its layers' work: requests, and tensors that enter and leave its
// stage (docs/profiles.md).

namespace troupe::gpu {

struct worker_times {
  part_times plain;             // of a stage without work, with small tensors
  double tensors_gbytes_s = 0;  // 0: large tensors took no longer than small ones
};

/// Starts a worker for the middle one of three layers that compute nothing
/// (troupe/programs/identity.py), which `s` has as its program. `tensor_bytes`: of the large
/// tensors.
expected<worker_times> measure_worker(python_spec s, const worker_starter& start,
                                      std::uint64_t tensor_bytes, std::uint32_t rounds);

}  // namespace troupe::gpu
