#pragma once

#include <cstdint>

#include "actors/protocol/protocol.hpp"
#include "gpu/device/stage_device.hpp"
#include "messages/wire/stage.hpp"

// The interfaces of a training's actors, and the messages that only they take.

namespace troupe::actors {

/// A device has completed an operation of a stage.
struct device_done {
  expected<gpu::outcome> what;
  std::uint64_t abandoned = 0;  // the executor's count when it was submitted
};

/// To a trainer: finish the iteration, save and exit.
struct stop_training {};

/// To a stage: its part is over. It releases its device, and remains to resend lost tensors.
struct release_device {};

using stage_actor = actor_of<inbound<stage_run>, inbound<tensor>, inbound<tensor_request>,
                             release_device, device_done, call_now>;

using trainer_actor =
    actor_of<inbound<stage_report>, inbound<training_report_ack>, stop_training, tick>;

}  // namespace troupe::actors
