#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/model/layer_origin.hpp"
#include "messages/domain/job.hpp"

// Sentences for a job's events about things that its user may not expect.

namespace troupe::actors {

/// Values that a program's checkpoint was written with, and the job has otherwise.
std::vector<std::string> changes_since(const gpu::layer_origin& then, const job_spec& now);

/// That a training has fewer stages or pipelines than it asks for; empty if it has not.
std::string smaller_than_asked(const pipeline_wish& wish, std::uint32_t stages,
                               std::uint32_t pipelines);

}  // namespace troupe::actors
