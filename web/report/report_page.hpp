#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace troupe::web {

/// One HTML file with its data, styles and scripts: it is opened from a disk and asks for nothing.
/// The data's "kind" chooses what report.js draws; text that is not UTF-8 is repaired.
std::string report_page(const nlohmann::ordered_json& data);

}  // namespace troupe::web
