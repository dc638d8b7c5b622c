#pragma once

#include "actors/training/stage_options.hpp"
#include "gpu/python/worker_process.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// Starts the worker of a stage of a program (`how.program`), and waits until it is ready. Fails
/// with the worker's reason, or if `start` is null.
expected<stage_backend> make_program_backend(const stage_setup& s,
                                             const gpu::worker_starter& start);

}  // namespace troupe::actors
