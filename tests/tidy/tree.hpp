#pragma once

#include <vector>

#include "tidy/rules.hpp"
#include "tidy/source.hpp"

// Rules about files together.

namespace troupe::tidy {

/// A component is a header with its .cpp file, or one of the two alone. None of a module's uses
/// itself by way of others: what the compiler allows, since the circle is closed by .cpp files, but
/// none of its parts can be understood, tested or replaced without the others.
std::vector<finding> check_components(const std::vector<source>& all);

/// No folder has more code files than a reader can keep apart.
std::vector<finding> check_folders(const std::vector<source>& all);

}  // namespace troupe::tidy
