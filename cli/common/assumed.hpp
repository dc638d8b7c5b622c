#pragma once

#include <string>
#include <string_view>

#include "messages/domain/job.hpp"

namespace troupe::cli {

/// The plan that is assumed for a program whose file has neither a model nor its needs; `missing`:
/// the keys that would do, "model, gpus or memory_gb". Empty: the file has one of them.
std::string assumption_text(const job_spec& job, std::string_view missing);

}  // namespace troupe::cli
