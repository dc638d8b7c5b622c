#pragma once

#include <compare>
#include <cstdint>

#include "messages/base/fields.hpp"
#include "messages/base/units.hpp"

namespace troupe {

/// One stage of one pipeline of a lease's training.
struct stage_name {
  lease_id lease = 0;
  std::uint32_t pipeline = 0, stage = 0;

  TROUPE_FIELDS(stage_name, lease, pipeline, stage);
  auto operator<=>(const stage_name&) const = default;
};

}  // namespace troupe
