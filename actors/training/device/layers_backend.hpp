#pragma once

#include <memory>

#include "actors/training/device/stage_options.hpp"
#include "gpu/device/device_executor.hpp"
#include "gpu/worker/worker_process.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// Starts the worker of a stage of a program (`how.program`), and waits until it is ready. Fails
/// with the worker's reason, or if `start` is null. `executor`: of a device that has a guest; else
/// null.
expected<stage_backend> make_layers_backend(const stage_setup& s,
                                            const std::shared_ptr<gpu::device_executor>& executor,
                                            const gpu::worker_starter& start);

}  // namespace troupe::actors
