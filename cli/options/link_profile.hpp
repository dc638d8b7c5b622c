#pragma once

#include <cstdint>
#include <string>

#include "cli/output/output.hpp"

namespace troupe::cli {

/// `troupe profile --links ADDRESS`: measures, and prints what belongs into a cluster file.
int measure_links(output& out, const std::string& address, std::uint32_t flows);
/// `troupe profile --links --listen ADDRESS`: answers one measurement.
int answer_links(output& out, const std::string& address);

}  // namespace troupe::cli
