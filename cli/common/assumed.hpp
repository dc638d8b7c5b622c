#pragma once

#include <string>
#include <string_view>

#include "messages/domain/job.hpp"

namespace troupe::cli {

/// What a program is planned as that says neither what it computes nor what it needs; `missing`:
/// how it could have, "model, gpus or memory_gb". Empty: it says something.
std::string assumption_text(const job_spec& job, std::string_view missing);

}  // namespace troupe::cli
