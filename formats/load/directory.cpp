#include <cstdlib>
#include <system_error>

#include "formats/load/load.hpp"
#include "messages/base/absolute_path.hpp"

namespace troupe::formats {

namespace fs = std::filesystem;

namespace {

bool has_catalogue(const fs::path& directory) {
  std::error_code error;
  return fs::is_regular_file(directory / "gpus.yaml", error);
}

}  // namespace

// Order: the variable, an installed program's share folder, the source tree of a program that was
// built in it.
fs::path configs_directory() {
  if (const char* named = std::getenv("TROUPE_CONFIGS"); named && *named) return named;
  std::error_code error;
  const auto program = fs::read_symlink("/proc/self/exe", error);
  if (!error)
    for (const char* near : {"../share/troupe/configs", "../../configs"}) {
      const auto directory = (program.parent_path() / near).lexically_normal();
      if (has_catalogue(directory)) return directory;
    }
  return TROUPE_CONFIGS_SOURCE;
}

// A cluster's folder may have its own catalogue; else the shipped one.
fs::path catalogue_for(const fs::path& cluster_file) {
  const auto whole = absolute_path(cluster_file);
  auto directory = (whole ? fs::path{*whole} : cluster_file).lexically_normal().parent_path();
  // Deep enough for configs/clusters/mine/x.yaml.
  for (int up = 0; up < 4; ++up) {
    if (has_catalogue(directory)) return directory / "gpus.yaml";
    if (!directory.has_relative_path()) break;
    directory = directory.parent_path();
  }
  return configs_directory() / "gpus.yaml";
}

}  // namespace troupe::formats
