#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "messages/domain/job.hpp"

namespace troupe::cli {

/// The plan that is assumed for a program whose file has neither a model nor its needs; `missing`:
/// the keys that would do, "model, gpus or memory_gb". Empty: the file has one of them.
std::string assumption_text(const job_spec& job, std::string_view missing);

/// Sentences about what is probably not meant: files of a training that are not here, and numbers
/// of GPUs that the batch of an elastic program does not permit.
std::vector<std::string> doubts_of(const job_spec& job);

}  // namespace troupe::cli
