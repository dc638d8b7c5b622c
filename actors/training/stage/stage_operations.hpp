#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "gpu/device/stage_device.hpp"
#include "messages/wire/stage.hpp"

// The operations that a stage gives its device, from what the stage knows.

namespace troupe::actors {

/// Without inputs.
gpu::operation operation_of(const stage_step& s);

/// The device makes the id of a communicator for the peers of this stage; pipeline 0's counts.
gpu::operation make_group_operation(const stage_setup& s);
gpu::operation join_communicator_operation(const stage_setup& s,
                                           const std::vector<std::uint8_t>& id);
/// The id that a device has made; empty of other pipelines than 0.
std::vector<std::uint8_t> communicator_id_of(const gpu::outcome& o);

/// The optimizer step, with the sums of the hosts, or, if both are empty, with the device's own.
gpu::operation update_operation(std::pair<payload, payload> sums, double scale);

/// For clipping: the norms of these sums, which the device keeps, and the step by them.
gpu::operation norms_operation(std::pair<payload, payload> sums);
gpu::operation clipped_update_operation(double squared_norm, double scale);

}  // namespace troupe::actors
