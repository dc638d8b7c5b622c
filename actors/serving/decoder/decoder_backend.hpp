#pragma once

#include <memory>
#include <string>

#include "gpu/inference/inference_device.hpp"
#include "messages/domain/serving.hpp"

namespace troupe::actors {

/// Loads a served model onto a device of this kind. Takes seconds. Fails if its files
/// cannot be served, if the cache does not hold one sequence of the longest context, or if the
/// device does not serve.
expected<std::unique_ptr<gpu::inference_device>> load_model(const serving& s,
                                                            const std::string& backend);

}  // namespace troupe::actors
