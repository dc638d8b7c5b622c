#pragma once

#include <string_view>

#include "messages/domain/device_kind.hpp"
#include "messages/domain/job.hpp"

namespace troupe::planners {

/// The abilities of the device kind that the job's training names; none if it names no kind.
inline device_facts device_facts_of(const job_spec& job) {
  return facts_of_device(job.train ? std::string_view{job.train->device} : std::string_view{});
}

}  // namespace troupe::planners
