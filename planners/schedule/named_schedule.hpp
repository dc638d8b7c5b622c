#pragma once

#include <string_view>

#include "messages/base/reason.hpp"
#include "planners/schedule/schedule.hpp"

namespace troupe::planners {

/// `name`: one of schedule_names (messages/domain/schedules.hpp). Fails for an unknown name, an
/// invalid shape, and a memory limit that no order can keep.
expected<pipeline_schedule> schedule_pipeline(const pipeline_shape& shape, std::string_view name);

}  // namespace troupe::planners
