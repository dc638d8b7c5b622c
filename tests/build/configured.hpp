#pragma once

#include <set>
#include <string>

#include "harness/shell.hpp"

namespace troupe::test {

/// Configures this checkout in an emptied folder of the build, with more arguments. Without `all`,
/// what TROUPE_ONLY=gpu leaves of it.
struct configured {
  std::string folder;
  command_result result;
};
configured configure(const std::string& name, const std::string& arguments, bool all = false,
                     const std::string& environment = "");

/// The same, where CMake and pkg-config find no library of the system but those that
/// TROUPE_ONLY=gpu may use.
configured configure_hidden(const std::string& name, bool all = false);

/// The compiler's commands and the names of all targets, the folder itself left out: equal for
/// equal builds.
std::set<std::string> commands_and_targets(const std::string& folder);

}  // namespace troupe::test
