#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tidy/rules.hpp"
#include "tidy/source.hpp"

// Lists that a page has and code has, too.

namespace troupe::tidy {

/// The sub-modules of docs/architecture.md against floors.cpp, its number of kinds of journal
/// entries against messages/wire/journal.hpp, and the verbs of cli/README.md against verbs.def.
/// `read`: a file of the checkout by its path.
std::vector<finding> check_lists(const std::function<source(const std::string& path)>& read);

/// The row of docs/architecture.md for a module.
std::string floors_row(const std::string& module);

}  // namespace troupe::tidy
