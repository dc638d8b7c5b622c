#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu/device/stage_device.hpp"
#include "gpu/worker/python_spec.hpp"
#include "gpu/worker/worker_process.hpp"
#include "gpu/worker/worker_protocol.hpp"

namespace troupe::gpu {

struct python_stage {
  std::unique_ptr<program_device> device;
  python::worker_hello hello;
  python::worker_stage_ready ready;
  double ready_s = 0;  // from the process's start
};

/// Starts a worker and waits until it is ready. Fails with a sentence if the worker does not
/// connect in time, is of another version, ends, or if the program cannot make its layers.
///
/// The device takes no tokens: a program has its own data, so that forward's `in` is {} in the
/// first stage, and {activation} in others; tensors are those of gpu/worker/tensors.hpp. `out` of
/// `gradients` are views of memory that `update` changes. A worker that dies, closes its socket or
/// breaks the protocol ends the device: all operations from then on fail with the same reason. The
/// destructor does not wait for the worker. `thread`: the device's, which may have a guest; null:
/// one of its own.
expected<python_stage> make_python_device(const python_spec& s, const worker_starter& start,
                                          std::shared_ptr<device_thread> thread = nullptr);

}  // namespace troupe::gpu
