#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tidy/rules.hpp"

namespace troupe::tidy {

/// The sub-folders of a module, the lowest floor first. A file may include from its own folder and
/// from lower floors, so that sub-folders form no circle.
struct module_floors {
  std::string module;
  std::vector<std::vector<std::string>> floors;  // "": files in the module's own folder
};

const std::vector<module_floors>& all_floors();

/// Includes of a folder of the same floor or a higher one, and files of no floor.
std::vector<finding> check_floors(const source& s);

/// The floors as text, a line a module.
std::string text_of_floors();

}  // namespace troupe::tidy
