#pragma once

#include <compare>
#include <cstdint>
#include <tuple>

#include "messages/base/units.hpp"

namespace troupe {

/// One stage of one pipeline of a lease's training.
struct stage_name {
  lease_id lease = 0;
  std::uint32_t pipeline = 0, stage = 0;

  static constexpr auto fields() {
    return std::tuple{&stage_name::lease, &stage_name::pipeline, &stage_name::stage};
  }
  auto operator<=>(const stage_name&) const = default;
};

}  // namespace troupe
