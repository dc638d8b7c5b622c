#pragma once

#include <memory>
#include <string>

#include "actors/serving/prefill/guest_engine.hpp"
#include "actors/serving/prefill/guest_prompts.hpp"
#include "gpu/inference/inference_device.hpp"
#include "messages/base/reason.hpp"

namespace troupe::actors {

/// A guest's layers on a device of this kind, with the weights of its model's folder, or random
/// ones. Sets what the shape has of sizes. Under rule resumable an operation is a sublayer on 64
/// tokens, otherwise a tile in all layers. Fails if the folder's model is not the one that was
/// described, and if weights and a page of cache do not fit the memory that was lent.
expected<std::shared_ptr<guest_engine>> open_guest_device(guest_shape& shape,
                                                          guest_engine::listener done,
                                                          const std::string& backend);

/// The same on a device that has the place's layers, whatever its model.
std::shared_ptr<guest_engine> make_guest_device(const guest_place& place, bool resumable,
                                                std::unique_ptr<gpu::inference_device> device,
                                                guest_engine::listener done);

}  // namespace troupe::actors
