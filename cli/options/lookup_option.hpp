#pragma once

#include <memory>
#include <span>
#include <string>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "planners/cost/lookup_table.hpp"

namespace troupe::cli {

/// The lookup table of --lut; null for an empty name.
expected<std::shared_ptr<const planners::lookup_table>> load_lookup_option(
    const std::string& file, std::span<const gpu_type> catalogue);

}  // namespace troupe::cli
