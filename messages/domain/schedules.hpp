#pragma once

#include <array>
#include <string_view>

namespace troupe {

/// The pipeline schedules that a job may request (planners/schedule/schedule.hpp makes them).
inline constexpr std::array<std::string_view, 7> schedule_names{
    "gpipe", "megatron", "varuna", "varuna-forward-first", "atlas", "atlas-least-progress", "best"};

}  // namespace troupe
