#pragma once

#include <string>
#include <vector>

#include "messages/base/reason.hpp"

namespace troupe::cli {

/// Limit of the rows of GPUs, and of those of links; a page with more shows how many there are.
inline constexpr std::size_t max_picture_rows = 240;

/// Writes a self-contained HTML page like Figure 6 of the ATLAS paper: the iterations of these
/// timeline files of trainings side by side (or one below the other in narrow windows), to the same
/// time scale. Fails if a timeline is not complete, as on a full disk.
expected<void> draw_iterations(const std::vector<std::string>& timelines, const std::string& page);

}  // namespace troupe::cli
