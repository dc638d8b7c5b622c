#include "gpu/files/control_groups.hpp"

#include <optional>
#include <sstream>
#include <string>

#include "gpu/files/kernel_file.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;

/// A line of /proc/self/cgroup is NUMBER:CONTROLLERS:PATH; version 2 has no controllers there.
struct group_line {
  std::string controllers, path;
};
std::optional<group_line> parse_group(const std::string& line) {
  const auto first = line.find(':');
  const auto second = first == std::string::npos ? first : line.find(':', first + 1);
  if (second == std::string::npos) return {};
  return group_line{line.substr(first + 1, second - first - 1), line.substr(second + 1)};
}

bool has_controller(const std::string& controllers, std::string_view name) {
  std::istringstream all{controllers};
  for (std::string each; std::getline(all, each, ',');)
    if (each == name) return true;
  return false;
}

}  // namespace

std::vector<fs::path> control_groups(const fs::path& groups, const fs::path& mounted,
                                     std::string_view controller) {
  std::vector<fs::path> all;
  std::istringstream lines{kernel_file(groups)};
  for (std::string line; std::getline(lines, line);) {
    const auto g = parse_group(line);
    if (!g || !(g->controllers.empty() || has_controller(g->controllers, controller))) continue;
    const auto root = g->controllers.empty() ? mounted : mounted / g->controllers;
    auto path = fs::path{g->path}.lexically_normal().relative_path();
    for (; !path.empty() && path != "."; path = path.parent_path()) all.push_back(root / path);
    all.push_back(root);
    if (!g->controllers.empty()) all.push_back(mounted / controller);
  }
  return all;
}

}  // namespace troupe::gpu
