#pragma once

#include <caf/all.hpp>

#include "actors/protocol/protocol.hpp"
#include "gpu/device/stage_device.hpp"
#include "messages/wire/stage.hpp"

// The interfaces of a training's actors, and the messages that only they take.

namespace troupe::actors {

/// A device has completed an operation of a stage.
struct device_done {
  expected<gpu::outcome> what;
};

/// To a trainer: finish the iteration, save and exit.
struct stop_training {};

/// To a stage: its part is over. It releases its device, and remains to resend lost tensors.
struct release_device {};

using stage_actor =
    caf::typed_actor<caf::reacts_to<inbound<stage_run>>, caf::reacts_to<inbound<tensor>>,
                     caf::reacts_to<inbound<tensor_request>>, caf::reacts_to<release_device>,
                     caf::reacts_to<device_done>, caf::reacts_to<call_now>>;

using trainer_actor = caf::typed_actor<caf::reacts_to<inbound<stage_report>>,
                                       caf::reacts_to<inbound<training_report_ack>>,
                                       caf::reacts_to<stop_training>, caf::reacts_to<tick>>;

}  // namespace troupe::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::device_done)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::stop_training)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::release_device)
