#pragma once

#include <memory>

#include "actors/training/interfaces.hpp"
#include "actors/training/stage_executor.hpp"
#include "actors/training/stage_options.hpp"

namespace troupe::actors {

/// The executor of a stage: on the device that the options' `create` makes, which may take minutes;
/// without it, simulated. `o` is the stage's own and outlives it. `done` receives the simulated
/// device's results; a real one posts `device_done`. Fails if there is no device.
/// Nothing else in a stage distinguishes real devices from simulated ones.
expected<std::unique_ptr<stage_executor>> make_stage_executor(stage_actor::pointer self,
                                                              stage_options& o,
                                                              gpu::stage_device::done done);

}  // namespace troupe::actors
